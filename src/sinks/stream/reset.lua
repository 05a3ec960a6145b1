#!lua flags=allow-oom
-- Put cursors somewhere else, forwards or back, under new epochs: what their owners were about to commit is stale.
--
-- KEYS[1] owners   hash  partition -> "<owner or -> <epoch> <release by µs or 0> <wanted by or ->"
-- KEYS[2] cursors  hash  partition -> seq up to which everything is done
-- KEYS[3] group    hash  revision
-- KEYS[4] blocked  hash  partition -> what blocks it, JSON
-- KEYS[5] shelves  hash  object -> "<partition> <parked or released> <last seq on it> <reason, JSON>"
-- ARGV[1] now      µs; '' means the server's clock (tests pass a number)
-- ARGV[2] wake     channel on which all members hear of it
-- ARGV[3] shelf_prefix the events set aside of an object are the list  shelf_prefix .. sha1
-- ARGV[4…]         per partition: its number, the cursor, the seq up to which the log is trimmed
--
-- An object whose shelf begins behind the new cursor comes again from the log, all of it: its shelf is given up.
--
-- Replies {'reset'}, or {'unknown'} when the processor has no cursors: it never ran, or was removed

local owners, cursors, group, blocked, shelves = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, wake, shelf_prefix = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

if redis.call('EXISTS', cursors) == 0 then return {'unknown'} end
local from = {}
for i = 4, #ARGV, 3 do
  local partition, cursor = ARGV[i], ARGV[i + 1]
  from[partition] = math.max(tonumber(cursor), tonumber(ARGV[i + 2]))
  redis.call('HSET', cursors, partition, cursor)
  redis.call('HDEL', blocked, partition)
  local owner, epoch, rest = string.match(redis.call('HGET', owners, partition) or '', '^(%S+) (%d+) (.+)$')
  if owner then
    redis.call('HSET', owners, partition, string.format('%s %.0f %s', owner, math.max(tonumber(epoch) + 1, now), rest))
  end
end
local flat = redis.call('HGETALL', shelves)
for i = 1, #flat, 2 do
  local partition, shelf = string.match(flat[i + 1], '^%d+'), shelf_prefix .. redis.sha1hex(flat[i])
  local first = string.match(redis.call('LINDEX', shelf, 0) or '', '^{"seq":(%d+)')
  if first and from[partition] and tonumber(first) > from[partition] then
    redis.call('HINCRBY', group, 'shelved', -redis.call('LLEN', shelf))
    redis.call('UNLINK', shelf)
    redis.call('HDEL', shelves, flat[i])
  end
end
redis.call('HINCRBY', group, 'revision', 1)
redis.call('PUBLISH', wake, '*')
return {'reset'}
