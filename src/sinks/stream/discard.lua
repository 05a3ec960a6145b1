#!lua flags=allow-oom
-- Give up dead letters, or all that lies on the shelf of a parked object.
--
-- KEYS[1] group       hash  revision, shelved
-- KEYS[2] dead        hash  event id -> dead letter, JSON
-- KEYS[3] dead_order  zset  event id by the time it became a dead letter
-- KEYS[4] shelves     hash  object -> "<partition> <parked or released> <last seq on it> <reason, JSON>"
-- ARGV[1] wake        channel on which all members hear of it
-- ARGV[2] shelf_prefix the events set aside of an object are the list  shelf_prefix .. sha1
-- ARGV[3] scope       'letters' or 'objects'
-- ARGV[4…]            event ids, or objects
--
-- Replies {'discarded', events}: how many were there. An object that is being worked off is left alone.
--
-- The empty shelf stays, released: only the owner, who may be about to put more on it, takes it away.

local group, dead, dead_order, shelves = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local wake, shelf_prefix, scope = ARGV[1], ARGV[2], ARGV[3]
local events = 0

for i = 4, #ARGV do
  if scope == 'letters' then
    events = events + redis.call('HDEL', dead, ARGV[i])
    redis.call('ZREM', dead_order, ARGV[i])
  else
    local partition, rest = string.match(redis.call('HGET', shelves, ARGV[i]) or '', '^(%d+) parked (.+)$')
    if partition then
      local shelf = shelf_prefix .. redis.sha1hex(ARGV[i])
      local count = redis.call('LLEN', shelf)
      redis.call('UNLINK', shelf)
      redis.call('HSET', shelves, ARGV[i], partition .. ' released ' .. rest)
      redis.call('HINCRBY', group, 'shelved', -count)
      redis.call('HINCRBY', group, 'revision', 1)
      events = events + count
    end
  end
end
if scope == 'objects' and events > 0 then redis.call('PUBLISH', wake, '*') end
return {'discarded', events}
