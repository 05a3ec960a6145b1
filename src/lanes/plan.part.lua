-- Who gives how many in which order: the lowest number first, each up to its weight; the one at which n ends keeps its
-- place and the rest of its turn.
local function plan(wanted)
  local line, order, had_credit = {}, {}, {}
  local names = redis.call('ZRANGE', turns, 0, wanted - 1)
  load_lanes(names)
  for i, lane_name in ipairs(names) do
    line[i] = loaded[lane_name]
    line[i].planned = 0
    if line[i].credit > 0 then had_credit[line[i]] = line[i].credit end
  end
  local at, in_line, ordered = 1, #line, 0
  while ordered < wanted and at <= in_line do
    local lane = line[at]
    local has = lane.tail - lane.head + lane.ranked - lane.planned
    local turn = lane.credit > 0 and lane.credit or lane.weight
    local given = math.min(turn, has, wanted - ordered)
    for i = ordered + 1, ordered + given do order[i] = lane end
    ordered = ordered + given
    lane.planned = lane.planned + given
    if given < turn and given < has then
      lane.credit = turn - given
    else
      lane.credit, lane.turn = 0, next_turn()
      if given < has then
        in_line = in_line + 1
        line[in_line] = lane
      end
    end
    at = at + 1
  end
  return order, had_credit
end
