-- One plain event of a process is appended to a partition: what publish.lua does, with few keys and arguments (publish-one.lua, next.lua).

local format, match = string.format, string.match
local along_bytes = 1024

-- words, record, object: as of publish-one.lua. Answers what it replies.
local function append(log, meta, heads, heads_old, words, record, object)
  local process, n, floor, wake = match(words, '^(%S+) (%d+) (%d+) (%S+)$')
  local topic, rest, tenant = match(record, '^\30{"type":"([%w_-]+)([%w_.-]*)","tenant":"([^"]+)"')
  if not tenant or string.find(record, '\30', 2, true) then return {'whole'} end

  local call, count, last_of = 'call:' .. process, 'topic:' .. topic, 'last:' .. topic
  local known = redis.call('HMGET', meta, 'last', 'events', 'bytes', 'headsClosed', count, call, last_of, 'closedUntil')
  local seen = tonumber(known[6] and match(known[6], '^%d+') or n)
  if seen > tonumber(n) then return {'late'} end
  -- Sent before, or the first of its process, which looks after those of others; or Redis is nearly full.
  if seen == tonumber(n) or known[8] then return {'whole'} end

  local prev = object ~= '' and (redis.call('HGET', heads, object) or known[4] and redis.call('HGET', heads_old, object)) or ''
  local before, time = known[1] or '0', redis.call('TIME')
  local last = format('%d', math.max(before + 1, time[1] * 1000000 + time[2], floor + 1))
  redis.call('XADD', log, last .. '-0', prev, record)
  if object ~= '' then redis.call('HSET', heads, object, last) end
  redis.call('HSET', meta, 'last', last, 'events', format('%d', (known[2] or 0) + 1),
    'bytes', format('%d', (known[3] or 0) + #record - 1), count, format('%d', (known[5] or 0) + 1), last_of, last,
    call, n .. ' ' .. last .. ' 1 []')

  -- A small one travels with its hint: who waits for it need not come and read it.
  local along = #record <= along_bytes and '\n\n' .. prev .. '\n' .. record or ''
  local hint = before .. ' ' .. last .. '\n' .. tenant .. ':' .. topic .. rest .. along
  -- Whoever hears of it by the answer has the partition's channel on the same connection: one listener of each is this process alone,
  -- and its hint would only be in the way of what it does now (0.1 ms).
  local namespace = match(wake, '^[^:]*')
  local listening = redis.call('PUBSUB', 'NUMSUB', wake, namespace .. ':answers:' .. process)
  if listening[2] ~= 1 or listening[4] ~= 1 then redis.call('PUBLISH', wake, hint) end
  redis.call('PUBLISH', namespace .. ':wake:' .. topic, wake .. ' ' .. topic .. ':' .. (known[7] or '0') .. ' ' .. hint)
  return {'stored', last, prev, before}
end
