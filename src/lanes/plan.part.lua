-- Who gives how many in which order: the lowest number first, each up to its weight; the one at which n ends keeps its
-- place and the rest of its turn.
local function plan(wanted)
  local line, order, had_credit = {}, {}, {}
  local names = redis.call('ZRANGE', turns, 0, wanted - 1)
  load_lanes(names)
  for i, lane_name in ipairs(names) do
    line[i] = loaded[lane_name]
    planned[line[i]] = 0
    if credit_of[line[i]] > 0 then had_credit[line[i]] = credit_of[line[i]] end
  end
  local at, in_line, ordered = 1, #line, 0
  while ordered < wanted and at <= in_line do
    local lane = line[at]
    local has = tail_of[lane] - head_of[lane] + ranked_of[lane] - planned[lane]
    local turn = credit_of[lane] > 0 and credit_of[lane] or weight_of[lane]
    local given = math.min(turn, has, wanted - ordered)
    for i = ordered + 1, ordered + given do order[i] = lane end
    ordered = ordered + given
    planned[lane] = planned[lane] + given
    if given < turn and given < has then
      credit_of[lane] = turn - given
    else
      credit_of[lane], turn_of[lane] = 0, next_turn()
      if given < has then
        in_line = in_line + 1
        line[in_line] = lane
      end
    end
    at = at + 1
  end
  return order, had_credit
end
