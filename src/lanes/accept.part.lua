-- Act: take events of one partition into their lanes, each exactly once: what was applied already is passed over.
--
-- Words  field         of the store: applied:<partition>; the script has asked for it
--        its_revision  of the subscription that the events were matched for
--        its_born      revision of its creation
--        first         seq of the first event
--        last          seq of the last event
--        events        how many follow
--        named         '1': the items are those of operations (the act inputs)
--        the lanes of all of them, then their items, each behind the name of its operation if they are named
--
-- Replies {'accepted', items}    how many were new
--         {'full', items}        so many were taken; the backlog of the next one's tenant is full, and it is held back with what follows
--         {'outdated', revision} the subscription has changed: match again; nothing written
--         {'gone'}               there is no such store, or one of an earlier subscription of that name; nothing written

-- Act: what is shown of the inputs of the events that follow, of a tracked queue, and their operations. It has no reply.
--
-- Words  inputs   how many follow, each: id, what is shown instead of its data
--        objects  of the events that the act accept will have: how many follow, and then the entries for each (operation-index.part.lua)
function acts.inputs()
  return function(at)
    local said = {}
    for i = 1, tonumber(argv[at]) do said[argv[at + 2 * i - 1]] = argv[at + 2 * i] end
    local objects_at = at + 1 + 2 * argv[at]
    local objects = tonumber(argv[objects_at])
    if track then track.inputs(said, objects_at + 1, objects) end
    return nil, objects_at + 1 + 2 * objects, 0
  end
end

function acts.accept()
  -- The objects of the events, of an ordered queue, false for none.
  local objects_of
  -- What is new begins as an operation, also what is given up at once: only `hold` leaves some of it behind.
  local takes_all = overflow ~= 'hold' or most_backlog == math.huge

  local function seq_of(item) return match(item, '^%d+%-(%d+) ') end

  local function load_objects_of(names, from, step)
    local fields = {}
    for i = 1, #names do
      local key = key_of(argv[from + step * (i - 1)], names[i])
      objects_of[i] = key ~= no_key and names[i] .. ' ' .. key
      if objects_of[i] then fields[#fields + 1] = objects_of[i] end
    end
    load_objects(fields)
  end

  -- A tenant has no room for it. Answers whether the item was dealt with; else there is room now.
  local function is_turned_away(lane, item)
    if overflow == 'drop-oldest' and drop_oldest(lane) then return false end
    bury(lane, match(item, '^%S+'), item, full_reason())
    return true
  end

  local function take(at)
    local field, its_revision, its_born = argv[at], tonumber(argv[at + 1]), tonumber(argv[at + 2])
    local first, last, events = tonumber(argv[at + 3]), tonumber(argv[at + 4]), tonumber(argv[at + 5])
    local lanes_at, step = at + 7, argv[at + 6] == '1' and 2 or 1
    local from, after = lanes_at + events + step - 1, lanes_at + events + step * events
    if not revision or its_born > born then return {'gone'}, after, 0 end
    if its_revision < revision or its_born < born then return {'outdated', revision}, after, 0 end
    if its_revision > revision then
      revision = its_revision
      note('revision', format('%.0f', its_revision))
    end
    -- Up to where the partition of these events was taken.
    local applied = tonumber(asked_for[field] or 0)
    if applied >= last then return {'accepted', 0}, after, 0 end

    local names, entered, ready, up_to, is_held_back = {}, 0, 0, argv[at + 4], false
    objects_of = {}
    for i = 1, events do names[i] = argv[lanes_at + i - 1] end
    load_all(names)
    if is_ordered then load_objects_of(names, from, step) end
    local are_all_new = step == 2 and applied < first and takes_all
    if track and are_all_new then track.all_enter(from - 1, after - 1) end
    for i = 1, events do
      local item = argv[from + step * (i - 1)]
      if applied < first or tonumber(seq_of(item)) > applied then
        local lane = loaded[names[i]]
        local full = limits and is_full(lane)
        if full and overflow == 'hold' then
          -- What was taken is applied; what was applied before stays so.
          local before = i > 1 and seq_of(argv[from + step * (i - 2)])
          is_held_back, up_to = true, before and tonumber(before) > applied and before or asked_for[field]
          break
        end
        entered = entered + 1
        if track and not are_all_new then track.enters(item) end
        if not (full and is_turned_away(lane, item)) and (not is_ordered or admits(lane, item, objects_of[i])) then
          line_up(lane, item, 0)
          if turn_of[lane] or gave[lane] then ready = ready + 1 end
        elseif full then
          leaves_line(lane)
        end
      end
    end
    count('in', entered)
    if up_to then
      asked_for[field] = up_to
      note(field, up_to)
    end
    return is_held_back and {'full', entered} or {'accepted', entered}, after, ready
  end

  return function(at)
    local reply, after, ready = take(at)
    -- What was said is said of these events: what a later act meets was not looked through.
    if track then track.inputs(nil) end
    return reply, after, ready
  end
end
