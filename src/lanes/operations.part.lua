-- Operations: what became of the items of a tracked queue, written by the scripts that move them. Of a queue that is not tracked nothing
-- of this is run.
--
-- Beside the store, each under its key with another last word:
--   ops           hash  operation -> its record; an item's operation is its id, without "<queue>."
--   opNotes       hash  operation -> "<progress>\30<line>\30…", what its handler has said
--   opsEnded      list  "<ms> <operation>" in the order in which they ended
--   opsOf:<hash>  zset  operation -> ms at which it was queued, of one object
--   opCounts      hash  'total', or a minute since the epoch -> "<succeeded> <failed> <cancelled> <bucket>:<how many>…"
--   opCancels     hash  operation -> ms: someone wants it cancelled, and its item is still there
--   opsWake       channel on which those who wait for an end hear of it
--
-- A record: state, version, attempts begun, ms at which it was queued, last begun, ended, packed; then
-- "<worker> <token>\30<header line of its envelope>\30<input>\30<output or error>".
--
-- track_mode: 'all'; 'failures', of those that succeed only counts are kept; 'ending', it is not tracked any more, and what has a record ends.

local track_mode, track_hides
if tracking then track_mode, track_hides = string.match(tracking, '^(%a+) (%d)$') end

local function track_operations()
  track = {}
  local match, find = string.match, string.find
  local base = sub(store, 1, -6)
  local ops, notes, ended_ones, marks = base .. 'ops', base .. 'opNotes', base .. 'opsEnded', base .. 'opCancels'
  local counts = base .. 'opCounts'
  local head_format, head_bytes = '>BI4I4I6I6I6', 27
  local queued, running, succeeded, failed, cancelled = 1, 2, 3, 4, 5
  local keep_ms, most_ended, most_input, minutes = 86400000, 1000000, 16384, 1440

  -- A record, as it is worked on here: a list is made faster than so many fields.
  local STATE, VERSION, ATTEMPTS, QUEUED, BEGAN, ENDED, WORKER, TOKEN, BODY, RESULT, IS_CHANGED, IS_GONE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
  -- Operation -> its record; false where there is none. BODY: "<header>\30<input>\30"; RESULT: output or error.
  local records = {}
  -- Operations, in this order: changed, with their records; entered, with their indexes; ended.
  local changes, entered, ended = {}, {}, {}
  local finished, took = {0, 0, 0}, {}
  local count_of_marks
  -- Four to each doubling: percentiles are right to a tenth.
  local per_bucket = 4 / math.log(2)

  local function operation_of(id)
    local dot = find(id, '.', 1, true)
    return dot and sub(id, dot + 1) or id
  end

  local function unpacked(text)
    local state, version, attempts, queued_at, began_at, ended_at = struct.unpack(head_format, text)
    local worker, token, at = match(text, '^(%S+) ([^\30]*)\30()', head_bytes + 1)
    local body, result
    -- Mostly it has no result yet.
    if byte(text, -1) == 30 then body, result = sub(text, at), '' else body, result = match(text, '^([^\30]*\30[^\30]*\30)(.*)$', at) end
    return {state, version, attempts, queued_at, began_at, ended_at, worker, token, body, result, false, false}
  end

  local function load_names(names)
    local missing = {}
    for i = 1, #names do
      if records[names[i]] == nil then records[names[i]], missing[#missing + 1] = false, names[i] end
    end
    for from = 1, #missing, 1000 do
      for i, text in ipairs(redis.call('HMGET', ops, unpack(missing, from, math.min(from + 999, #missing)))) do
        if text then records[missing[from + i - 1]] = unpacked(text) end
      end
    end
  end

  -- Of any number, with one look.
  function track.load(ids)
    local names = {}
    for i = 1, #ids do names[i] = operation_of(ids[i]) end
    load_names(names)
  end

  -- The record of an item, false without one; and what it is called.
  local function record_of(id)
    local name = operation_of(id)
    if records[name] == nil then load_names({name}) end
    return records[name], name
  end

  local function writes(record, name)
    if record[IS_CHANGED] then return end
    record[IS_CHANGED] = true
    changes[#changes + 1], changes[#changes + 2] = name, record
  end

  local function moves(record, name, state)
    writes(record, name)
    record[STATE], record[VERSION] = state, record[VERSION] + 1
  end

  -- It ends, once: who has ended already stays as it is.
  local function ends(id, state, result)
    local record, name = record_of(id)
    local before = record and record[STATE]
    if not before or before >= succeeded then return end
    moves(record, name, state)
    record[ENDED], record[RESULT], record[TOKEN] = now, result or '', '-'
    finished[state - running] = finished[state - running] + 1
    ended[#ended + 1] = name
    if before == running then
      -- Not above 0 it is 0, and not -0, which is another text.
      local bucket = math.max(0, math.ceil(per_bucket * math.log(math.max(1, now - record[BEGAN])) - 0.000001))
      took[bucket] = (took[bucket] or 0) + 1
    end
    record[IS_GONE] = state == succeeded and track_mode == 'failures'
  end

  local function back_in_line(id, attempts, result)
    local record, name = record_of(id)
    if not record or record[STATE] ~= running then return end
    moves(record, name, queued)
    record[ATTEMPTS], record[RESULT], record[TOKEN] = record[ATTEMPTS] + attempts, result or record[RESULT], '-'
    if record[ATTEMPTS] == 0 then record[BEGAN], record[WORKER] = 0, '-' end
  end

  local function header_of(record) return match(record[BODY], '^[^\30]*') end

  -- What was said of the inputs: by item, where it is another than its data; nil when nobody has said anything, and then what may hold a
  -- secret is not shown.
  function track.inputs(said) track.said = said end

  local function input_of(id, data)
    local said = track.said
    if said and said[id] then return said[id] end
    if not said and track_hides == '1' or #data > most_input then return '' end
    return data
  end

  -- An item comes into the queue: its operation begins.
  function track.enters(id, item)
    if track_mode == 'ending' then return end
    local name = operation_of(id)
    local attempts, enqueued, header_at = match(item, '^%S+ %d+ %S+ (%d+) %d+ (%d+) [^\n]*\n()')
    local header_end = find(item, '\n', header_at, true)
    local header = sub(item, header_at, header_end - 1)
    local body = header .. '\30' .. input_of(id, sub(item, header_end + 1)) .. '\30'
    local record = {queued, 0, tonumber(attempts), tonumber(enqueued), 0, 0, '-', '-', body, '', false, false}
    records[name] = record
    entered[#entered + 1], entered[#entered + 2] = name, track.index_of(header) or false
    moves(record, name, queued)
    return record
  end

  function track.begins(ids, items, worker, token)
    track.load(ids)
    for i = 1, #ids do
      local record, name = record_of(ids[i])
      -- Those that were there before their queue was tracked have none yet.
      record = record or track.enters(ids[i], items[i])
      if record and record[STATE] == queued then
        moves(record, name, running)
        record[ATTEMPTS], record[BEGAN], record[WORKER], record[TOKEN] = record[ATTEMPTS] + 1, now, worker, token
      end
    end
  end

  -- Taken for good: begun and done in one step.
  function track.pops(ids, items, worker)
    track.begins(ids, items, worker, '-')
    for i = 1, #ids do ends(ids[i], succeeded) end
  end

  function track.succeeds(id, output) ends(id, succeeded, output) end
  function track.fails(id, reason) ends(id, failed, reason) end
  -- To have memory again: its input goes with it.
  function track.drops(id, reason)
    local record = record_of(id)
    if record then record[BODY] = header_of(record) .. '\30\30' end
    ends(id, failed, reason)
  end
  function track.cancels(id, reason) ends(id, cancelled, reason) end
  -- Its attempt is over, and it is to be tried again.
  function track.retries(id, reason) back_in_line(id, 0, reason) end
  -- As if it had never begun.
  function track.returns(id) back_in_line(id, -1) end

  -- A person wants it to be tried anew.
  function track.begins_anew(id, item)
    local record, name = record_of(id)
    record = record or track.enters(id, item)
    if not record or record[STATE] ~= failed then return end
    moves(record, name, queued)
    record[ATTEMPTS], record[BEGAN], record[ENDED], record[WORKER], record[RESULT] = 0, 0, 0, '-', ''
    redis.call('HDEL', notes, name)
  end

  -- It is held under another lease.
  function track.holds(id, token)
    local record, name = record_of(id)
    if not record or record[STATE] ~= running then return end
    writes(record, name)
    record[TOKEN] = token
  end

  -- Its state, and the lease under which it runs; nil when there is no such operation, or none any more.
  function track.state(id)
    local record, name = record_of(id)
    if not record or record[STATE] >= succeeded and record[ENDED] + keep_ms <= now then return nil end
    return record[STATE], record[TOKEN], name
  end

  -- Someone wants something cancelled that is still there.
  function track.has_marks()
    count_of_marks = count_of_marks or redis.call('HLEN', marks)
    return count_of_marks > 0
  end

  local function numeral(number) return format('%.0f', number) end

  -- As it reads now; nil when there is no such operation, or none any more: operation, state, version, attempts, when it was queued, last begun
  -- and ended, worker, whether someone wants it cancelled, header; with its details also input, output or error, and what its handler has
  -- said. One whose lease has lapsed is nobody's: it reads as queued.
  function track.row(name, has_details)
    local state, token = track.state(name)
    if not state then return nil end
    local record = records[name]
    local lapses = state == running and tonumber(redis.call('ZSCORE', KEYS[7], token) or 0)
    local reads_as = lapses and lapses <= now and queued or state
    local row = {name, numeral(reads_as), numeral(record[VERSION]), numeral(record[ATTEMPTS]), numeral(record[QUEUED]),
      numeral(record[BEGAN]), numeral(record[ENDED]), record[WORKER], track.wants_cancelled(name) and '1' or '0', header_of(record)}
    if has_details then
      row[11], row[12] = match(record[BODY], '\30([^\30]*)\30$'), record[RESULT]
      row[13] = redis.call('HGET', notes, name) or ''
    end
    return row
  end

  function track.wants_cancelled(id) return track.has_marks() and redis.call('HEXISTS', marks, operation_of(id)) == 1 end

  function track.wants_any_cancelled(ids)
    if not track.has_marks() then return false end
    for i = 1, #ids do
      if track.wants_cancelled(ids[i]) then return true end
    end
    return false
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

  -- The index of what has happened to an object, by the header of an envelope; nil without a key.
  function track.index_of(header)
    if not find(header, ',"key":', 1, true) then return nil end
    local tenant, key = match(header, '"tenant":"([^"]*)","key":"([^"]*)"')
    if find(header, '\\', 1, true) then
      local read_header = cjson.decode(header)
      tenant, key = read_header.tenant, read_header.key
    end
    return key and base .. 'opsOf:' .. sub(redis.sha1hex(tenant .. '/' .. key), 1, 24)
  end

  local function removes(names)
    for i = 1, #names do
      local index = track.index_of(header_of(records[names[i]]))
      if index then redis.call('ZREM', index, names[i]) end
    end
    in_pieces('HDEL', ops, names)
    in_pieces('HDEL', notes, names)
  end

  -- Nothing of it is kept but counts: no record, and nothing that is still to be cancelled.
  function track.is_empty() return redis.call('HLEN', ops) + redis.call('HLEN', marks) == 0 end

  -- Where it is not tracked any more, and nothing is left that could end.
  local function stop_tracking()
    if track_mode == 'ending' and track.is_empty() then redis.call('HDEL', store, 'track') end
  end

  -- The oldest of those that have ended, at most so many: those whose time is over, or any. Answers how many.
  local function forget(most, any)
    local length = redis.call('LLEN', ended_ones)
    local over, names, times = 0, {}, {}
    local first = redis.call('LINDEX', ended_ones, 0)
    if not first or not any and length <= most_ended and tonumber(match(first, '^%d+')) + keep_ms > now then return 0 end
    for _, one in ipairs(redis.call('LRANGE', ended_ones, 0, most - 1)) do
      local ms, name = match(one, '^(%d+) (.*)$')
      if not any and length - over <= most_ended and tonumber(ms) + keep_ms > now then break end
      over = over + 1
      names[over], times[name] = name, tonumber(ms)
    end
    load_names(names)
    local gone = {}
    for name, ms in pairs(times) do
      -- One that began anew is not over, or ended again later.
      local record = records[name]
      if record and record[STATE] >= succeeded and record[ENDED] == ms then gone[#gone + 1] = name end
    end
    removes(gone)
    for i = 1, #gone do records[gone[i]] = false end
    redis.call('LTRIM', ended_ones, over, -1)
    return over
  end

  -- Those whose time is over, at most so many. Answers whether there are more.
  function track.sweep(most)
    local over = forget(most, false)
    stop_tracking()
    return over == most
  end

  -- Whenever they ended. Answers how many.
  function track.forget(most) return forget(most, true) end

  local function added(text, more)
    local all, buckets = {0, 0, 0}, {}
    if text then
      all[1], all[2], all[3] = match(text, '^(%d+) (%d+) (%d+)')
      for bucket, n in string.gmatch(text, '(%d+):(%d+)') do buckets[bucket] = tonumber(n) end
    end
    local words = {}
    for i = 1, 3 do words[i] = format('%.0f', all[i] + finished[i]) end
    if more then
      for bucket, n in pairs(took) do
        local name = format('%.0f', bucket)
        buckets[name] = (buckets[name] or 0) + n
      end
      for bucket, n in pairs(buckets) do words[#words + 1] = bucket .. ':' .. format('%.0f', n) end
    end
    return table.concat(words, ' ')
  end

  local function count_ends()
    local minute = format('%.0f', math.floor(now / 60000))
    local before = redis.call('HMGET', counts, 'total', minute)
    redis.call('HSET', counts, 'total', added(before[1], false), minute, added(before[2], true))
    if before[2] or redis.call('HLEN', counts) <= minutes + 1 then return end
    for _, field in ipairs(redis.call('HKEYS', counts)) do
      if field ~= 'total' and tonumber(field) <= now / 60000 - minutes then redis.call('HDEL', counts, field) end
    end
  end

  function track.save()
    if #changes == 0 then return end
    local there, gone, over = {}, {}, {}
    for i = 1, #changes, 2 do
      local name, record = changes[i], changes[i + 1]
      record[IS_CHANGED] = false
      if record[IS_GONE] then
        gone[#gone + 1] = name
      else
        there[#there + 1], there[#there + 2] = name, struct.pack(head_format, record[STATE], record[VERSION], record[ATTEMPTS], record[QUEUED],
          record[BEGAN], record[ENDED]) .. record[WORKER] .. ' ' .. record[TOKEN] .. '\30' .. record[BODY] .. record[RESULT]
      end
    end
    in_pieces('HSET', ops, there)
    for i = 1, #entered, 2 do
      local name, index = entered[i], entered[i + 1]
      if index and not records[name][IS_GONE] then redis.call('ZADD', index, records[name][QUEUED], name) end
    end
    if #gone > 0 then
      removes(gone)
      for i = 1, #gone do records[gone[i]] = false end
    end
    if #ended > 0 then
      local written_now = format('%.0f', now)
      for i = 1, #ended do
        if records[ended[i]] then over[#over + 1] = written_now .. ' ' .. ended[i] end
      end
      in_pieces('RPUSH', ended_ones, over)
      count_ends()
      redis.call('PUBLISH', base .. 'opsWake', table.concat(ended, ' '))
    end
    -- Twice as many as this call can add, so that it never grows by what is over.
    track.sweep(math.min(1000, 2 + #changes))
    changes, entered, ended, finished, took = {}, {}, {}, {0, 0, 0}, {}
  end

  save_operations = track.save
end

if track_mode then track_operations() end

