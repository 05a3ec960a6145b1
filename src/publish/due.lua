#!lua flags=allow-oom
-- Read the delayed events of a partition that are due, in the order in which they are. Whoever appends them removes them.
--
-- KEYS[1] delayed         zset  number -> µs at which it is due
-- KEYS[2] delayed_events  hash  number -> envelope
-- ARGV[1] now_us      '' means the server's clock (tests pass a number)
-- ARGV[2] max_events
-- ARGV[3] max_bytes   of envelopes, after which no more are read
--
-- Replies {'due', ms until there are more or -1, number, envelope, number, envelope, …}

local delayed, delayed_events = KEYS[1], KEYS[2]
local now_us, max_events, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

if not now_us then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
end

local reply, bytes, taken = {'due', -1}, 0, 0
local first = redis.call('ZRANGE', delayed, 0, max_events, 'WITHSCORES')
for i = 1, #first, 2 do
  local due_us = tonumber(first[i + 1])
  if due_us > now_us or taken == max_events or bytes >= max_bytes then
    reply[2] = math.max(0, math.ceil((due_us - now_us) / 1000))
    break
  end
  local envelope = redis.call('HGET', delayed_events, first[i])
  taken, bytes = taken + 1, bytes + #envelope
  reply[#reply + 1], reply[#reply + 2] = first[i], envelope
end
return reply
