#!lua
-- Keep an event until it is due. It has no place in the log before that.
--
-- KEYS[1] delayed         zset  number -> µs at which it is due
-- KEYS[2] delayed_events  hash  number -> envelope
-- KEYS[3] meta            hash  delayed: the number given last
-- KEYS[4] once            string  the answer: "delayed <id> <due ms> <call> <body>"
-- ARGV[1] now_us       '' means the server's clock (tests pass a number)
-- ARGV[2] partition    its number
-- ARGV[3] delay_ms     from now; '' when at_ms is given
-- ARGV[4] at_ms        since the epoch; '' when delay_ms is given
-- ARGV[5] furthest_ms  from now
-- ARGV[6] most         how many may wait in this partition
-- ARGV[7] once_ms      for how long the answer is remembered
-- ARGV[8] call         random, the same when a call is repeated because it had no answer
-- ARGV[9] body         fingerprint of the event
-- ARGV[10] due         channel on which the leader hears of a new earliest one
-- ARGV[11] envelope
--
-- Replies {'kept', id, due ms}       also to a repeat of the call, which keeps nothing
--         {'duplicate', id, due ms}  what an earlier call was answered
--         {'reused'}                 the earlier call had another body, or its event was not delayed; nothing written
--         {'full', waiting}          as many wait as may; nothing written
--         {'far', ms}                later than may be, which is this; nothing written

local delayed, delayed_events, meta, once = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now_us, partition, delay_ms, at_ms = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local furthest_ms, most, once_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local call, body, due, envelope = ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local format = string.format

if not now_us then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
end

local seen = redis.call('GET', once)
if seen then
  local id, due_ms, its_call, its_body = string.match(seen, '^delayed (%S+) (%d+) (%S+) (.*)$')
  if its_body ~= body then return {'reused'} end
  if its_call ~= call then return {'duplicate', id, due_ms} end
  return {'kept', id, due_ms}
end

-- Whole ms, rounded up: what is due at a ms is never in the log with an earlier time.
local now_ms = math.ceil(now_us / 1000)
local due_ms = at_ms or now_ms + delay_ms
if due_ms > now_ms + furthest_ms then return {'far', format('%.0f', now_ms + furthest_ms)} end
local waiting = redis.call('ZCARD', delayed)
if waiting >= most then return {'full', waiting} end

-- Numbers grow and are equally long, so that of those due at the same time the first comes first.
local number = format('%.0f', math.max(now_us, tonumber(redis.call('HGET', meta, 'delayed') or 0) + 1))
local id, written_ms = 'd' .. partition .. '-' .. number, format('%.0f', due_ms)
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
redis.call('HSET', delayed_events, number, envelope)
redis.call('ZADD', delayed, format('%.0f', due_ms * 1000), number)
redis.call('HSET', meta, 'delayed', number)
redis.call('SET', once, table.concat({'delayed', id, written_ms, call, body}, ' '), 'PX', once_ms)
if not first or due_ms * 1000 < tonumber(first) then redis.call('PUBLISH', due, partition) end
return {'kept', id, written_ms}
