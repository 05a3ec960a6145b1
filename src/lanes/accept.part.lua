-- Act: take events of one partition into their lanes, each exactly once: what was applied already is passed over.
--
-- Words  field         of the store: applied:<partition>; the script has asked for it
--        its_revision  of the subscription that the events were matched for
--        its_born      revision of its creation
--        first         seq of the first event
--        last          seq of the last event
--        events        how many follow, each: lane, item
--
-- Replies {'accepted', items}    how many were new
--         {'full', items}        so many were taken; the backlog of the next one's tenant is full, and it is held back with what follows
--         {'outdated', revision} the subscription has changed: match again; nothing written
--         {'gone'}               there is no such store, or one of an earlier subscription of that name; nothing written

function acts.accept()
  local texts, used, bytes, ready

  local function seq_of(item) return match(item, '^%d+%-(%d+) ') end

  -- The objects of the events.
  local function fields_of(names, from, events)
    local fields = {}
    for i = 1, events do
      local key = key_of(argv[from + 2 * i - 1])
      if key then fields[#fields + 1] = names[i] .. ' ' .. key end
    end
    return fields
  end

  -- Lines an item up; its text is written with the others.
  local function line_up_soon(lane, name, item)
    local size = #item
    enters(lane)
    if turn_of[lane] or gave[lane] then ready = ready + 1 end
    texts[used + 1], texts[used + 2] = place_field(name, tail_of[lane]), item
    tail_of[lane], bytes_of[lane] = tail_of[lane] + 1, bytes_of[lane] + size
    used, bytes = used + 2, bytes + size
  end

  local function write_texts()
    in_pieces('HSET', items_at, texts)
    count('waiting', used / 2)
    count('bytes', bytes)
    texts, used, bytes = {}, 0, 0
  end

  -- A tenant has no room for it. Answers whether the item was dealt with; else there is room now.
  local function is_turned_away(lane, item)
    write_texts()
    if overflow == 'drop-oldest' and drop_oldest(lane) then return false end
    bury(lane, match(item, '^%S+'), item, full_reason())
    return true
  end

  return function(at)
    local field, its_revision, its_born = argv[at], tonumber(argv[at + 1]), tonumber(argv[at + 2])
    local first, last, events = tonumber(argv[at + 3]), tonumber(argv[at + 4]), tonumber(argv[at + 5])
    local from, after = at + 6, at + 6 + 2 * events
    if not revision or its_born > born then return {'gone'}, after, 0 end
    if its_revision < revision or its_born < born then return {'outdated', revision}, after, 0 end
    if its_revision > revision then
      revision = its_revision
      note('revision', format('%.0f', its_revision))
    end
    -- Up to where the partition of these events was taken.
    local applied = tonumber(asked_for[field] or 0)
    if applied >= last then return {'accepted', 0}, after, 0 end

    local names, entered, up_to, is_held_back = {}, 0, argv[at + 4], false
    texts, used, bytes, ready = {}, 0, 0, 0
    for i = 1, events do names[i] = argv[from + 2 * i - 2] end
    load_all(names)
    if is_ordered then load_objects(fields_of(names, from, events)) end
    for i = 1, events do
      local item = argv[from + 2 * i - 1]
      if applied < first or tonumber(seq_of(item)) > applied then
        local lane = loaded[names[i]]
        local full = limits and is_full(lane)
        if full and overflow == 'hold' then
          -- What was taken is applied; what was applied before stays so.
          local before = i > 1 and seq_of(argv[from + 2 * i - 3])
          is_held_back, up_to = true, before and tonumber(before) > applied and before or asked_for[field]
          break
        end
        entered = entered + 1
        if not (full and is_turned_away(lane, item)) and (not is_ordered or admits(lane, item)) then
          line_up_soon(lane, names[i], item)
        end
      end
    end
    write_texts()
    count('in', entered)
    if up_to then
      asked_for[field] = up_to
      note(field, up_to)
    end
    return is_held_back and {'full', entered} or {'accepted', entered}, after, ready
  end
end
