-- Operations that have ended: who waits hears of it, they are counted, and kept for a day.
--
--   opsEnded  list  "<ms> <operation> <operation>…" in the order in which they ended
--   opCounts  hash  'total', or a minute since the epoch -> "<succeeded> <failed> <cancelled> <bucket>:<how many>…"; 'kept' -> how many
--                   are in opsEnded
--   opsWake   channel on which those who wait for an end hear of it

-- when_ended and remove are of the records (operations.part.lua).
local function end_operations(base, when_ended, remove)
  local ends = {}
  local match = string.match
  local ended_ones, counts = base .. 'opsEnded', base .. 'opCounts'
  local keep_ms, most_ended, minutes = 86400000, 1000000, 1440
  -- Those that ended together are forgotten together, but not so many that a call which ends one of them takes long.
  local most_together = 20
  -- Four to each doubling: percentiles are right to a tenth.
  local per_bucket = 4 / math.log(2)

  -- In this call: how many ended how, and how many took how long.
  local finished, took = {0, 0, 0}, {}

  -- Nothing is known any more of what ended then.
  function ends.is_over(ms) return ms + keep_ms <= now end

  -- So many have ended in this way, 1 succeeded, 2 failed, 3 cancelled; began: since when they ran, if they did.
  function ends.count(way, began, times)
    finished[way] = finished[way] + times
    if not began then return end
    -- Not above 0 it is 0, and not -0, which is another text.
    local bucket = math.max(0, math.ceil(per_bucket * math.log(math.max(1, now - began)) - 0.000001))
    took[bucket] = (took[bucket] or 0) + times
  end

  -- The oldest of those that have ended, so many or a few more, up to those that stay. Answers them, when they ended, and how many pieces of the
  -- list they are.
  local function oldest(most, stays)
    local names, times, pieces, is_enough = {}, {}, 0, false
    while not is_enough do
      local page = redis.call('LRANGE', ended_ones, pieces, pieces + math.min(most, 50) - 1)
      is_enough = #page == 0
      for _, together in ipairs(page) do
        local ms = tonumber(match(together, '^%d+'))
        is_enough = #names >= most or stays(ms, #names)
        if is_enough then break end
        pieces = pieces + 1
        for name in string.gmatch(together, ' (%S+)') do names[#names + 1], times[#times + 1] = name, ms end
      end
    end
    return names, times, pieces
  end

  -- Those whose time is over, so many or a few more; with a time, all that ended so long ago. Answers how many.
  function ends.forget(most, after_ms)
    local kept, first = tonumber(redis.call('HGET', counts, 'kept') or 0), redis.call('LINDEX', ended_ones, 0)
    local function stays(ms, before)
      if after_ms then return ms + after_ms > now end
      return kept - before <= most_ended and not ends.is_over(ms)
    end
    if not first or stays(tonumber(match(first, '^%d+')), 0) then return 0 end
    local names, times, pieces = oldest(most, stays)
    local forgotten = {}
    for i, ms in ipairs(when_ended(names)) do
      -- One that began anew is not over, or ended again later.
      if ms == times[i] then forgotten[#forgotten + 1] = names[i] end
    end
    remove(forgotten)
    redis.call('LTRIM', ended_ones, pieces, -1)
    redis.call('HINCRBY', counts, 'kept', -#names)
    return #names
  end

  -- A count with what has ended in this call; the total has no times.
  local function added(text, has_times)
    local all, buckets = {0, 0, 0}, {}
    if text then
      all[1], all[2], all[3] = match(text, '^(%d+) (%d+) (%d+)')
      for bucket, n in string.gmatch(text, '(%d+):(%d+)') do buckets[bucket] = tonumber(n) end
    end
    local words = {}
    for i = 1, 3 do words[i] = format('%.0f', all[i] + finished[i]) end
    if has_times then
      for bucket, n in pairs(took) do
        local name = format('%.0f', bucket)
        buckets[name] = (buckets[name] or 0) + n
      end
      for bucket, n in pairs(buckets) do words[#words + 1] = bucket .. ':' .. format('%.0f', n) end
    end
    return table.concat(words, ' ')
  end

  -- So many of those that have ended are kept.
  local function write_counts(more)
    local minute = format('%.0f', math.floor(now / 60000))
    local before = redis.call('HMGET', counts, 'total', minute, 'kept')
    redis.call('HSET', counts, 'total', added(before[1], false), minute, added(before[2], true), 'kept', format('%.0f', (before[3] or 0) + more))
    finished, took = {0, 0, 0}, {}
    -- Of a day, the minute that is not over, and the two others.
    if before[2] or redis.call('HLEN', counts) <= minutes + 3 then return end
    for _, field in ipairs(redis.call('HKEYS', counts)) do
      if (tonumber(field) or math.huge) < minute - minutes then redis.call('HDEL', counts, field) end
    end
  end

  -- These have ended in this call. is_gone: by name, those of which nothing is kept.
  function ends.save(ended, is_gone)
    local kept, out, over = ended, {}, {}
    if next(is_gone) then
      kept = {}
      for _, name in ipairs(ended) do
        local list = is_gone[name] and out or kept
        list[#list + 1] = name
      end
    end
    for from = 1, #kept, most_together do
      over[#over + 1] = format('%.0f ', now) .. table.concat(kept, ' ', from, math.min(from + most_together - 1, #kept))
    end
    in_pieces('RPUSH', ended_ones, over)
    remove(out)
    write_counts(#kept)
    redis.call('PUBLISH', base .. 'opsWake', table.concat(ended, ' '))
  end

  return ends
end
