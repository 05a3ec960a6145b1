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
--         {'outdated', revision} the subscription has changed: match again; nothing written
--         {'gone'}               there is no such store, or one of an earlier subscription of that name; nothing written

function acts.accept()
  -- The objects of the events.
  local function fields_of(names, from, events)
    local fields = {}
    for i = 1, events do
      local key = key_of(argv[from + 2 * i - 1])
      if key then fields[#fields + 1] = names[i] .. ' ' .. key end
    end
    return fields
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

    local names, texts, used, bytes, ready, entered = {}, {}, 0, 0, 0, 0
    for i = 1, events do names[i] = argv[from + 2 * i - 2] end
    load_all(names)
    if is_ordered then load_objects(fields_of(names, from, events)) end
    for i = 1, events do
      local item = argv[from + 2 * i - 1]
      local is_new = applied < first or tonumber(match(item, '^%d+%-(%d+) ')) > applied
      if is_new then entered = entered + 1 end
      if is_new and admits(loaded[names[i]], item) then
        local lane, size = loaded[names[i]], #item
        enters(lane)
        if turn_of[lane] or gave[lane] then ready = ready + 1 end
        texts[used + 1], texts[used + 2] = place_field(names[i], tail_of[lane]), item
        tail_of[lane], bytes_of[lane] = tail_of[lane] + 1, bytes_of[lane] + size
        used, bytes = used + 2, bytes + size
      end
    end
    in_pieces('HSET', items_at, texts)
    count('waiting', used / 2)
    count('bytes', bytes)
    count('in', entered)
    asked_for[field] = argv[at + 4]
    note(field, argv[at + 4])
    return {'accepted', entered}, after, ready
  end
end
