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
  local at = 1
  while #order < wanted and at <= #line do
    local lane = line[at]
    local has = lane.tail - lane.head + lane.ranked - lane.planned
    local turn = lane.credit > 0 and lane.credit or lane.weight
    local given = math.min(turn, has, wanted - #order)
    for _ = 1, given do order[#order + 1] = lane end
    lane.planned = lane.planned + given
    if given < turn and given < has then
      lane.credit = turn - given
    else
      lane.credit, lane.turn = 0, next_turn()
      if given < has then line[#line + 1] = lane end
    end
    at = at + 1
  end
  return order, had_credit
end
