-- Who gives how many in which order: the lowest number first, each up to its weight; the one at which n ends keeps its
-- place and the rest of its turn.
--
-- Where no lane may have more than a share of what is in flight, those above theirs are passed over, and keep their places, as long as
-- another in line is below its own. They are never more than the share goes into one. When all are above, the one that holds least is
-- next: whoever never ends what it holds would have everything otherwise.
local function plan(wanted)
  local order, had_credit, ordered = {}, {}, 0
  local most_held, passed_at_most = share_limits(wanted)
  local line = {}
  local names = redis.call('ZRANGE', turns, 0, wanted - 1 + passed_at_most)
  load_lanes(names)
  for i, lane_name in ipairs(names) do
    line[i] = loaded[lane_name]
    planned[line[i]] = 0
    if credit_of[line[i]] > 0 then had_credit[line[i]] = credit_of[line[i]] end
  end

  -- Answers the lanes that were passed over.
  local function serve_by_turns()
    local at, in_line, passed = 1, #line, {}
    while ordered < wanted and at <= in_line do
      local lane = line[at]
      local has = tail_of[lane] - head_of[lane] + ranked_of[lane] - planned[lane]
      local most = limits and math.min(has, may_give(lane), most_held - held_of[lane] - planned[lane]) or has
      local turn = credit_of[lane] > 0 and credit_of[lane] or weight_of[lane]
      local given = math.min(turn, most, wanted - ordered)
      if given > 0 then
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
      end
      if given < math.min(turn, has, wanted - ordered + given) then passed[#passed + 1] = lane end
      at = at + 1
    end
    return passed
  end

  local function serve_least(lanes_above)
    while ordered < wanted do
      local least, its_held = nil, math.huge
      for _, lane in ipairs(lanes_above) do
        local in_flight = held_of[lane] + planned[lane]
        if in_flight < its_held and waits_in(lane) > planned[lane] and may_give(lane) > 0 then least, its_held = lane, in_flight end
      end
      if not least then return end
      ordered = ordered + 1
      order[ordered], planned[least] = least, planned[least] + 1
      credit_of[least], turn_of[least] = 0, next_turn()
    end
  end

  local passed = serve_by_turns()
  if passed_at_most > 0 then serve_least(passed) end
  return order, had_credit
end
