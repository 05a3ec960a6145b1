-- Operations: what became of the items of a tracked queue, written by the scripts that move them. Of a queue that is not tracked nothing
-- of this is run.
--
-- Beside the store, each under its key with another last word:
--   opItems    hash  operation -> its item as it entered, with what is shown of its data; an item's operation is its id, without "<queue>."
--   ops        hash  operation -> its record, of those that nobody has claimed yet mostly none
--   opNotes    hash  operation -> "<progress>\30<line>\30…", what its handler has said
--   opCancels  hash  operation -> ms: someone wants it cancelled, and its item is still there
-- and which operations an object has (operation-index.part.lua), and which have ended (operation-ends.part.lua).
--
-- A record: state, version, attempts begun, ms at which it last began and ended, packed; then "<worker> <token>\30<output or error>".
--
-- What stays of an operation is written once, when it enters (operation-entry.part.lua), and that is all then. Those that are claimed or done
-- together mostly have the same record, so what becomes of it is worked out once for all of them: texts are looked up, not taken apart.
--
-- track_hides: the list of what is never shown (redact.ts), '0' for nothing.
-- track_mode: 'all'; 'failures', of those that succeed only counts are kept; 'ending', it is not tracked any more, and what is an operation ends.
-- is_mixed: items may be there that are no operations, for they came while it was not tracked.
-- has_returned: some may wait that have a record although they were never tried, for they were handed back, or begin anew.

local track_mode, track_hides, is_mixed, has_returned
if tracking then
  local more
  track_mode, track_hides, more = string.match(tracking, '^(%a+) (%S+)(.*)$')
  is_mixed, has_returned = more == ' mixed', more == ' returned'
end

local function track_operations()
  local match, find = string.match, string.find
  local base = sub(store, 1, -6)
  local ops, kept_items, notes, index = base .. 'ops', base .. 'opItems', base .. 'opNotes', index_operations(base)
  local marks = base .. 'opCancels'
  local head_format, head_bytes = '>BI4I4I6I6', 21
  local queued, running, succeeded, failed, cancelled = 1, 2, 3, 4, 5

  -- Id of an item -> the record of its operation, of those that are looked at one by one; false where there is none.
  local records = {}
  -- To be written, before anybody looks: operation, record, ….
  local written, count_of_written = {}, 0
  -- Values that were written of records.
  local changes = 0
  -- Operations that have ended; of these, those that are gone at once; those without an input.
  local ended, gone, dropped = {}, {}, {}
  local keeps_no_success = track_mode == 'failures'
  -- Items of which something was said that is not kept.
  local withheld = {}
  local withheld_output = '{"omitted":"output that was not looked through for what this queue never shows"}'
  local withheld_reason = 'not kept: it was not looked through for what this queue never shows'
  local count_of_marks

  -- Takes away all that is kept of some.
  local function remove(names)
    local objects, lines = {}, {}
    for i, item in ipairs(values_of(kept_items, names)) do
      local object, line = '', ''
      if item then object, line = index.place_of(item, names[i]) end
      if object ~= '' then objects[#objects + 1], lines[#lines + 1] = object, line end
    end
    index.remove(objects, lines)
    in_pieces('HDEL', ops, names)
    in_pieces('HDEL', kept_items, names)
    in_pieces('HDEL', notes, names)
  end

  -- 0 for those that have not, false for those that there are not.
  local function when_ended(names)
    local times = values_of(ops, names)
    for i, record in ipairs(times) do times[i] = record and select(5, struct.unpack(head_format, record)) end
    return times
  end

  local function operation_of(id)
    local dot = find(id, '.', 1, true)
    return dot and sub(id, dot + 1) or id
  end

  local ends, entry = end_operations(base, when_ended, remove), enter_operations(kept_items, index, operation_of, track_mode, track_hides)
  track = {index = index, inputs = entry.inputs, enters = entry.enters, all_enter = entry.all_enter, is_over = ends.is_over}

  local function packed(state, version, attempts, began, ended_at, worker, token, result)
    return struct.pack(head_format, state, version, attempts, began, ended_at) .. worker .. ' ' .. token .. '\30' .. result
  end

  local function unpacked(record)
    local state, version, attempts, began, ended_at = struct.unpack(head_format, record)
    return state, version, attempts, began, ended_at, match(record, '^(%S+) ([^\30]*)\30(.*)$', head_bytes + 1)
  end

  -- Of those that have only entered: it is not stored.
  local fresh = packed(queued, 1, 0, 0, 0, '-', '-', '')

  local function write_records()
    entry.lay()
    if count_of_written == 0 then return end
    in_pieces('HSET', ops, written)
    written, count_of_written, changes = {}, 0, changes + count_of_written
  end

  local function operations_of(ids)
    -- Events that were routed are called as their items are.
    if not find(table.concat(ids, ' '), '.', 1, true) then return ids end
    local names = {}
    for i = 1, #ids do names[i] = operation_of(ids[i]) end
    return names
  end

  -- Operations of some items, of any number, and their records; false where none is stored.
  local function look(ids)
    write_records()
    records = {}
    local names = operations_of(ids)
    return names, values_of(ops, names)
  end

  -- With one look for those that are looked at one by one then.
  function track.load(ids)
    local _, found = look(ids)
    for i = 1, #ids do records[ids[i]] = found[i] or nil end
  end

  local function is_there(name) return redis.call('HEXISTS', kept_items, name) == 1 end

  -- The record of an item, false when it is no operation; and what its operation is called.
  local function record_of(id)
    local name = operation_of(id)
    if records[id] == nil then
      write_records()
      records[id] = redis.call('HGET', ops, name) or is_there(name) and fresh
    end
    return records[id], name
  end

  -- What is written last of an operation counts.
  local function becomes(id, name, record)
    records[id], written[count_of_written + 1], written[count_of_written + 2] = record, name, record
    count_of_written = count_of_written + 2
  end

  -- A record when it has ended, once, but for its result; false when it has ended before. And when it began, if it ran.
  local function end_of(record, state)
    local before, version, attempts, began, _, worker = unpacked(record)
    if before >= succeeded then return false end
    return packed(state, version + 1, attempts, began, now, worker, '-', ''), before == running and began
  end

  -- One that was there before its queue was tracked. Answers its record, if it is to have one.
  local function enters_late(item)
    if track_mode == 'ending' then return false end
    entry.enters(item)
    local attempts = match(item, '^%S+ %d+ %S+ (%d+) ')
    return attempts == '0' and fresh or packed(queued, 1, tonumber(attempts), 0, 0, '-', '-', '')
  end

  -- The record of an item that has none stored.
  local function unstored(name, item)
    if not is_mixed or is_there(name) then return fresh end
    return enters_late(item)
  end

  local function begin(record, worker, token)
    local state, version, attempts, _, _, _, _, result = unpacked(record)
    return state == queued and packed(running, version + 1, attempts + 1, now, 0, worker, token, result)
  end

  -- Whether none of these has been claimed before: then they have only entered, and no record is stored.
  local function are_untried(ids, items, fields)
    if is_mixed or has_returned then return false end
    for i = 1, #ids do
      local id, item = ids[i], items[i]
      -- "<id> 0 <lane> 0 0 …", and the lane is the field without its last seven bytes.
      local at = #id + #fields[i] - 2
      if byte(item, #id + 2) ~= 48 or sub(item, at, at + 3) ~= '0 0 ' then return false end
    end
    return true
  end

  local function begin_first(names, worker, token)
    local begun, at = begin(fresh, worker, token), count_of_written
    for i = 1, #names do
      written[at + 1], written[at + 2] = names[i], begun
      at = at + 2
    end
    count_of_written, records = at, {}
  end

  -- Items are given, that lie in these fields. Answers whether all of them begin for the first time.
  function track.begins(ids, items, fields, worker, token)
    if are_untried(ids, items, fields) then
      begin_first(operations_of(ids), worker, token)
      return true
    end
    local names, found = look(ids)
    for i = 1, #ids do found[i] = found[i] or unstored(names[i], items[i]) end
    entry.lay()
    local begun, at, is_first = {[false] = false}, count_of_written, true
    for i = 1, #ids do
      local record = found[i]
      local after = begun[record]
      if record ~= fresh then is_first = false end
      if after == nil then
        after = begin(record, worker, token)
        begun[record] = after
      end
      if after then
        written[at + 1], written[at + 2] = names[i], after
        at = at + 2
      end
    end
    count_of_written = at
    return is_first
  end

  -- All of a lease whose items had never been claimed before, and of which none has left it: all records are what they became then.
  local function end_first(names, outputs, lease)
    local begun = packed(running, 2, 1, tonumber(lease.claimed), 0, match(lease.holder, '^%S+'), lease.token, '')
    local after, began = end_of(begun, succeeded)
    local at, at_end = count_of_written, #ended
    for i = 1, #names do
      written[at + 1], written[at + 2], ended[at_end + i] = names[i], after .. (outputs[i] or ''), names[i]
      at = at + 2
    end
    count_of_written, records = at, {}
    ends.count(succeeded - running, began, #names)
  end

  local function end_each(names, found, outputs)
    local after_of, began_at, times, at, at_end = {[false] = false}, {}, {}, count_of_written, #ended
    for i = 1, #names do
      local record, name = found[i], names[i]
      local after = after_of[record]
      if after == nil then
        after, began_at[record] = end_of(record, succeeded)
        after_of[record], times[record] = after, 0
      end
      if after then
        written[at + 1], written[at + 2], ended[at_end + 1] = name, after .. (outputs[i] or ''), name
        at, at_end, times[record] = at + 2, at_end + 1, times[record] + 1
      end
    end
    count_of_written = at
    for record, n in pairs(times) do ends.count(succeeded - running, began_at[record], n) end
  end

  -- Whether what was looked through for this list may be kept.
  function track.keeps(list) return track_hides == '0' or list == track_hides end

  -- What is said of these items is not kept: by a process that knows another definition.
  function track.withhold(ids, outputs)
    for i = 1, #ids do
      withheld[ids[i]] = true
      if outputs[i] and outputs[i] ~= '' then outputs[i] = withheld_output end
    end
  end

  -- Items are done, of a lease or taken for good: with these outputs, where there are some. `lease`: they are all that it was given.
  function track.done(ids, outputs, lease)
    local from, names, found = #ended + 1, nil, nil
    if lease and lease.is_first then
      names = operations_of(ids)
      end_first(names, outputs, lease)
    else
      names, found = look(ids)
      end_each(names, found, outputs)
    end
    if track.has_marks() then
      in_pieces('HDEL', marks, names)
      count_of_marks = nil
    end
    if not keeps_no_success then return end
    for i = from, #ended do gone[ended[i]] = true end
  end

  -- Taken for good: begun and done in one step.
  function track.pops(ids, items, fields, worker)
    track.begins(ids, items, fields, worker, '-')
    track.done(ids, {})
  end

  -- Someone wants something cancelled that is still there.
  function track.has_marks()
    count_of_marks = count_of_marks or redis.call('HLEN', marks)
    return count_of_marks > 0
  end

  function track.wants_cancelled(id) return track.has_marks() and redis.call('HEXISTS', marks, operation_of(id)) == 1 end

  function track.wants_any_cancelled(ids)
    if not track.has_marks() then return false end
    for _, marked in ipairs(values_of(marks, operations_of(ids))) do
      if marked then return true end
    end
    return false
  end

  -- What may be kept of it. Where nothing was said nothing was withheld.
  local function said(id, reason) return withheld[id] and withheld_reason or reason end

  local function end_one(id, state, result)
    local record, name = record_of(id)
    if not record then return end
    local after, began = end_of(record, state)
    if not after then return end
    becomes(id, name, after .. (result and said(id, result) or ''))
    ended[#ended + 1] = name
    ends.count(state - running, began, 1)
  end

  -- Some may wait now of which a claim does not see that they have a record.
  local function knows_returned()
    if is_mixed or has_returned then return end
    redis.call('HSET', store, 'track', track_mode .. ' ' .. track_hides .. ' returned')
    has_returned = true
  end

  local function back_in_line(id, more_attempts, reason)
    local record, name = record_of(id)
    if not record then return end
    local state, version, attempts, began, _, worker, _, result = unpacked(record)
    if state ~= running then return end
    attempts = attempts + more_attempts
    if attempts == 0 then
      began, worker = 0, '-'
      knows_returned()
    end
    becomes(id, name, packed(queued, version + 1, attempts, began, 0, worker, '-', reason and said(id, reason) or result))
  end

  function track.fails(id, reason) end_one(id, failed, reason) end
  -- To have memory again: its input goes with it.
  function track.drops(id, reason)
    dropped[#dropped + 1] = operation_of(id)
    end_one(id, failed, reason)
  end
  function track.cancels(id, reason) end_one(id, cancelled, reason) end
  -- Its attempt is over, and it is to be tried again.
  function track.retries(id, reason) back_in_line(id, 0, reason) end
  -- As if it had never begun.
  function track.returns(id) back_in_line(id, -1) end

  -- A person wants it to be tried anew.
  function track.begins_anew(id, item)
    local record, name = record_of(id)
    local state, version, _, ended_at
    if record then state, version, _, _, ended_at = unpacked(record) end
    -- One that nobody knows any more is another from now on, with a place in the index.
    local is_over = state == failed and ends.is_over(ended_at)
    if is_over then remove({name}) end
    if is_over or not record then
      enters_late(item)
      records[id] = nil
      return
    end
    if state ~= failed then return end
    becomes(id, name, packed(queued, version + 1, 0, 0, 0, '-', '-', ''))
    knows_returned()
    redis.call('HDEL', notes, name)
  end

  -- It is held under another lease.
  function track.holds(id, token)
    local record, name = record_of(id)
    if not record then return end
    local state, version, attempts, began, ended_at, worker, _, result = unpacked(record)
    if state == running then becomes(id, name, packed(state, version, attempts, began, ended_at, worker, token, result)) end
  end

  -- Its state, and the lease under which it runs; nil when there is no such operation, or none any more.
  function track.state(id)
    local record, name = record_of(id)
    if not record then return nil end
    local state, _, _, _, ended_at, _, token = unpacked(record)
    if state >= succeeded and ends.is_over(ended_at) then return nil end
    return state, token, name
  end

  local function numeral(number) return format('%.0f', number) end

  -- As it reads now; nil when there is no such operation, or none any more: operation, state, version, attempts, when it was queued, last begun
  -- and ended, until when it waits if it does, worker, whether someone wants it cancelled, header; with its details also input, output or error, and what its handler has
  -- said. One whose lease has lapsed is nobody's: it reads as queued.
  function track.row(name, has_details)
    local item = track.state(name) and redis.call('HGET', kept_items, name)
    if not item then return nil end
    local state, version, attempts, began, ended_at, worker, token, result = unpacked(records[name])
    local lapses = state == running and tonumber(redis.call('ZSCORE', KEYS[7], token) or 0)
    local id, queued_at, header, input = match(item, '^(%S+) %d+ %S+ %d+ %d+ (%d+) [^\n]*\n([^\n]*)\n(.*)$')
    local due = state == queued and redis.call('ZSCORE', KEYS[5], id)
    local row = {name, numeral(lapses and lapses <= now and queued or state), numeral(version), numeral(attempts), queued_at,
      numeral(began), numeral(ended_at), numeral(due or 0), worker, track.wants_cancelled(name) and '1' or '0', header}
    if has_details then row[12], row[13], row[14] = input, result, redis.call('HGET', notes, name) or '' end
    return row
  end

  function track.mark(id)
    redis.call('HSET', marks, operation_of(id), format('%.0f', now))
    count_of_marks = nil
  end

  -- Its item is gone.
  function track.unmark(id)
    if track.has_marks() then count_of_marks = count_of_marks - redis.call('HDEL', marks, operation_of(id)) end
  end

  -- An item was cancelled: counted as given up by a person, and in no place any more.
  function track.gives_away(lane, id)
    left_of[lane] = left_of[lane] + 1
    count('discarded', 1)
    track.unmark(id)
    track.cancels(id)
  end

  -- Nothing of it is kept but counts: no operation, and nothing that is still to be cancelled.
  function track.is_empty() return redis.call('HLEN', kept_items) + redis.call('HLEN', ops) + redis.call('HLEN', marks) == 0 end

  -- Where it is not tracked any more, and nothing is left that could end; or where all that was no operation, or had returned, is gone.
  local function track_less()
    if track_mode == 'ending' then
      if track.is_empty() then redis.call('HDEL', store, 'track') end
    elseif (is_mixed or has_returned) and in_all('waiting') + in_all('behind') + in_all('held') + redis.call('HLEN', KEYS[6]) == 0 then
      redis.call('HSET', store, 'track', track_mode .. ' ' .. track_hides)
      is_mixed, has_returned = false, false
    end
  end

  -- Those whose time is over, so many or a few more. Answers whether there are more.
  function track.sweep(most)
    local over = ends.forget(most)
    track_less()
    return over >= most
  end

  -- Whenever they ended. Answers how many. Where only failures are kept, what is gone counts as a success to those who wait, and they look once a
  -- second.
  function track.forget(most) return ends.forget(most, keeps_no_success and 5000 or 0) end

  local function drop_inputs()
    local kept = {}
    for i, item in ipairs(values_of(kept_items, dropped)) do
      if item then kept[#kept + 1], kept[#kept + 2] = dropped[i], entry.without_data(item) end
    end
    in_pieces('HSET', kept_items, kept)
  end

  function track.save()
    write_records()
    changes = changes + entry.changes
    if changes + #dropped == 0 then return end
    if #dropped > 0 then drop_inputs() end
    if #ended > 0 then ends.save(ended, gone) end
    -- Twice as many as this call can add, so that it never grows by what is over.
    track.sweep(math.min(1000, 2 + changes))
    changes, entry.changes, ended, gone, dropped = 0, 0, {}, {}, {}
  end

  save_operations = track.save
end

if track_mode then track_operations() end

