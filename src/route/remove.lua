#!lua flags=allow-oom
-- Remove a subscription: from here on no router gives it anything. Its store is taken away afterwards, under a mark.
--
-- KEYS[1] group          hash  revision: the highest that was given out; forgotten: the highest whose removal is not known any more
-- KEYS[2] subscriptions  hash  name -> "<revision> <born> <definition>"
-- KEYS[3] changes        zset  name -> revision of its last change; removed ones too
-- KEYS[4] own            hash  "<partition> <name>" -> "<seq> <revision>"
-- KEYS[5] replaced       hash  name -> definitions that were replaced a short while ago
-- KEYS[6] removing       hash  name -> "<revision> <at ms> <kind>": its store is being taken away
-- ARGV[1] now         µs; '' means the server's clock (tests pass a number)
-- ARGV[2] wake        channel on which routers hear that something has changed
-- ARGV[3] name
-- ARGV[4] partitions  how many there are
-- ARGV[5] most        removals to remember
--
-- Replies {'removed', mark}
--         {'removing', mark}  it was removed already, and its store is still being taken away
--         {'unknown'}
--
-- A router that has not loaded the table since a removal that is forgotten loads all of it.

local group, subscriptions, changes, own, replaced, removing = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local wake, name, partitions, most = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local now_ms = math.floor(now / 1000)

local mark = redis.call('HGET', removing, name)
if mark then return {'removing', mark} end
local stored = redis.call('HGET', subscriptions, name)
if not stored then return {'unknown'} end

local kind = cjson.decode(string.match(stored, '^%d+ %d+ (.*)$')).kind
local revision = string.format('%.0f', math.max(tonumber(redis.call('HGET', group, 'revision') or 0) + 1, now))
mark = string.format('%s %.0f %s', revision, now_ms, kind)
redis.call('HSET', removing, name, mark)
redis.call('HDEL', subscriptions, name)
redis.call('HDEL', replaced, name)
for partition = 0, partitions - 1 do redis.call('HDEL', own, partition .. ' ' .. name) end
redis.call('ZADD', changes, revision, name)
redis.call('HSET', group, 'revision', revision)

-- A tenth too many at a time, so that looking for them is rare.
local removals = redis.call('ZCARD', changes) - redis.call('HLEN', subscriptions)
if removals > most then
  local left = removals - math.floor(most * 0.9)
  local all = redis.call('ZRANGE', changes, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    if left == 0 then break end
    if redis.call('HEXISTS', subscriptions, all[i]) == 0 then
      redis.call('ZREM', changes, all[i])
      redis.call('HSET', group, 'forgotten', string.format('%.0f', tonumber(all[i + 1])))
      left = left - 1
    end
  end
end
redis.call('PUBLISH', wake, '*')
return {'removed', mark}
