#!lua flags=allow-oom
-- Put dead letters of one object back in line: on its shelf, between what waits there by seq, to be handled by the owner.
--
-- KEYS[1] group       hash  revision, shelved
-- KEYS[2] dead        hash  event id -> dead letter, JSON
-- KEYS[3] dead_order  zset  event id by the time it became a dead letter
-- KEYS[4] shelves     hash  object -> "<partition> <parked or released> <last seq on it> <reason, JSON>"
-- KEYS[5] shelf       list  the events set aside of the object, in order
-- ARGV[1] wake        channel on which all members hear of it
-- ARGV[2] partition
-- ARGV[3] object
-- ARGV[4] max_shelves objects that may be set aside at once
-- ARGV[5] max_shelved events that may lie on shelves at once
-- ARGV[6…]            per letter: event id, event as it lies on a shelf; in order
--
-- Replies {'redriven', letters}: those that were still there
--         {'full'}  there is no room on the shelves; nothing was written
--
-- An object that is parked stays parked: its letters come first when it is resumed.

local group, dead, dead_order, shelves, shelf = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local wake, partition, object = ARGV[1], ARGV[2], ARGV[3]
local max_shelves, max_shelved = tonumber(ARGV[4]), tonumber(ARGV[5])

local known = redis.call('HGET', shelves, object)
local room = tonumber(redis.call('HGET', group, 'shelved') or 0) + (#ARGV - 5) / 2
if room > max_shelved or (not known and redis.call('HLEN', shelves) >= max_shelves) then return {'full'} end

local function seq_of(event) return tonumber(string.match(event, '^{"seq":(%d+)')) end

-- Usually they are older than all that waits there, but not when others of the object were put back before.
local letters, at = 0, 0
for i = 6, #ARGV, 2 do
  local id, event = ARGV[i], ARGV[i + 1]
  if redis.call('HDEL', dead, id) == 1 then
    redis.call('ZREM', dead_order, id)
    local behind = redis.call('LINDEX', shelf, at)
    while behind and seq_of(behind) < seq_of(event) do
      at = at + 1
      behind = redis.call('LINDEX', shelf, at)
    end
    if behind then redis.call('LINSERT', shelf, 'BEFORE', behind, event) else redis.call('RPUSH', shelf, event) end
    letters = letters + 1
  end
end
if letters == 0 then return {'redriven', 0} end
if not known then redis.call('HSET', shelves, object, partition .. ' released 0 {}') end
redis.call('HINCRBY', group, 'shelved', letters)
redis.call('HINCRBY', group, 'revision', 1)
redis.call('PUBLISH', wake, '*')
return {'redriven', letters}
