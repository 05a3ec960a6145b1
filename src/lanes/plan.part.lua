-- Who gives how many in which order: the lowest number first, each up to its weight; the one at which n ends keeps its
-- place and the rest of its turn.
--
-- Where no lane may have more than a share of what is in flight, those above theirs are passed over, and keep their places, as long as
-- another in line is below its own. When all are above, the one that holds least is next: whoever never ends what it holds would have
-- everything otherwise.
--
-- `already`: how many this claim has given before. Answers the lanes in order, their credit before, and those that have to leave the line
-- first, for their rate is used up: then there may be more to give.
local min = math.min
local function plan(wanted, already)
  local order, had_credit, spent, ordered = {}, {}, {}, 0
  local most_held, passed_at_most = share_limits(already + wanted)
  local line = {}
  local names = redis.call('ZRANGE', turns, 0, wanted - 1 + passed_at_most)
  load_lanes(names)
  for i, lane_name in ipairs(names) do
    line[i] = loaded[lane_name]
    planned[line[i]] = 0
    if credit_of[line[i]] > 0 then had_credit[line[i]] = credit_of[line[i]] end
  end

  -- Without limits a lane gives what it has, up to its weight.
  local function serve_freely()
    local at, in_line, served = 1, #line, 0
    local line, planned, weight_of, credit_of = line, planned, weight_of, credit_of
    while served < wanted and at <= in_line do
      local lane = line[at]
      local before, credit = planned[lane], credit_of[lane]
      local has, turn = tail_of[lane] - head_of[lane] + ranked_of[lane] - before, credit > 0 and credit or weight_of[lane]
      local given = min(turn, has, wanted - served)
      for i = served + 1, served + given do order[i] = lane end
      served, planned[lane] = served + given, before + given
      if given < turn and given < has then
        credit_of[lane] = turn - given
      else
        last_turn = last_turn + 1
        turn_of[lane] = last_turn
        if credit > 0 then credit_of[lane] = 0 end
        if given < has then
          in_line = in_line + 1
          line[in_line] = lane
        end
      end
      at = at + 1
    end
  end

  -- Answers the lanes that were passed over.
  local function serve_by_turns()
    local at, in_line, passed = 1, #line, {}
    -- How many each may give in all.
    local most_of = {}
    while ordered < wanted and at <= in_line do
      local lane = line[at]
      local before = planned[lane]
      local is_out = before == 0 and is_spent(lane)
      if is_out then spent[#spent + 1] = lane end
      if before == 0 then most_of[lane] = min(may_give(lane), most_held - held_of[lane]) end
      local has = tail_of[lane] - head_of[lane] + ranked_of[lane] - before
      local most = min(has, most_of[lane] - before)
      local turn = credit_of[lane] > 0 and credit_of[lane] or weight_of[lane]
      local given = min(turn, most, wanted - ordered)
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
      if not is_out and given < min(turn, has, wanted - ordered + given) then passed[#passed + 1] = lane end
      at = at + 1
    end
    return passed
  end

  -- All that hold least are given one each, in line, then all that hold one more: as many steps as items are given.
  local function serve_least(lanes_above)
    local function in_flight(at) return held_of[lanes_above[at]] + planned[lanes_above[at]] end
    local by_held, joined, active, level = {}, 0, {}, 0
    for at = 1, #lanes_above do by_held[at] = at end
    table.sort(by_held, function(a, b)
      local held_by_a, held_by_b = in_flight(a), in_flight(b)
      if held_by_a ~= held_by_b then return held_by_a < held_by_b end
      return a < b
    end)
    while ordered < wanted and (#active > 0 or joined < #by_held) do
      if #active == 0 then level = in_flight(by_held[joined + 1]) end
      while joined < #by_held and in_flight(by_held[joined + 1]) == level do
        joined = joined + 1
        active[#active + 1] = by_held[joined]
      end
      table.sort(active)
      local still = {}
      for _, at in ipairs(active) do
        local lane = lanes_above[at]
        if ordered < wanted and waits_in(lane) > planned[lane] and may_give(lane) > planned[lane] then
          ordered = ordered + 1
          order[ordered], planned[lane], still[#still + 1] = lane, planned[lane] + 1, at
          credit_of[lane], turn_of[lane] = 0, next_turn()
        end
      end
      active, level = still, level + 1
    end
  end

  if limits then
    local passed = serve_by_turns()
    if passed_at_most > 0 and #spent == 0 then serve_least(passed) end
  else
    serve_freely()
  end
  return order, had_credit, spent
end
