#!lua flags=allow-oom
-- Put cursors somewhere else, forwards or back, under new epochs: what their owners were about to commit is stale.
--
-- KEYS[1] owners   hash  partition -> "<owner or -> <epoch> <release by µs or 0> <wanted by or ->"
-- KEYS[2] cursors  hash  partition -> seq up to which everything is done
-- KEYS[3] group    hash  revision
-- KEYS[4] blocked  hash  partition -> what blocks it, JSON
-- ARGV[1] now      µs; '' means the server's clock (tests pass a number)
-- ARGV[2] wake     channel on which all members hear of it
-- ARGV[3…]         per partition: its number, the cursor
--
-- Replies {'reset'}, or {'unknown'} when the processor has no cursors: it never ran, or was removed

local owners, cursors, group, blocked = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, wake = tonumber(ARGV[1]), ARGV[2]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

if redis.call('EXISTS', cursors) == 0 then return {'unknown'} end
for i = 3, #ARGV, 2 do
  local partition, cursor = ARGV[i], ARGV[i + 1]
  redis.call('HSET', cursors, partition, cursor)
  redis.call('HDEL', blocked, partition)
  local owner, epoch, rest = string.match(redis.call('HGET', owners, partition) or '', '^(%S+) (%d+) (.+)$')
  if owner then
    redis.call('HSET', owners, partition, string.format('%s %.0f %s', owner, math.max(tonumber(epoch) + 1, now), rest))
  end
end
redis.call('HINCRBY', group, 'revision', 1)
redis.call('PUBLISH', wake, '*')
return {'reset'}
