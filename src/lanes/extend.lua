#!lua flags=allow-oom
-- Give one held item a lease of its own, so long from now. 0 ms: the item is available at once, after one more attempt.
--
-- ARGV[6] token
-- ARGV[7] id
-- ARGV[8] ms
-- ARGV[9] own_token  of the item's own lease, random; the same when the call is repeated
--
-- Replies {'extended', token, ends}  token: the lease that holds it now; ends: ms since the epoch
--         {'released'}               it waits again, or is a dead letter
--         {'stale'}                  not held under this token; nothing written
--         {'gone'}                   there is no such store

local token, id, ms, own_token = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]

if not revision then return {'gone'} end

local item = redis.call('HGET', held_prefix .. token, id)
if not item then
  -- Sent again because its answer was lost.
  token = own_token
  item = redis.call('HGET', held_prefix .. token, id)
end
if not item then return {'stale'} end
local holder = redis.call('HGET', holders, token)

local function leave_lease()
  redis.call('HDEL', held_prefix .. token, id)
  if redis.call('EXISTS', held_prefix .. token) == 1 then return end
  redis.call('ZREM', leases, token)
  redis.call('HDEL', holders, token)
end

if ms > 0 then
  if token ~= own_token then
    leave_lease()
    redis.call('HSET', held_prefix .. own_token, id, item)
    redis.call('HSET', holders, own_token, holder)
  end
  redis.call('ZADD', leases, now + ms, own_token)
  return {'extended', own_token, format('%.0f', now + ms)}
end

leave_lease()
local after, _, attempts = tried(item, match(holder, '(%d+)$'))
local lane = lane_of(lane_name_of(item))
held_of[lane] = held_of[lane] - 1
count('held', -1)
if most_attempts > 0 and attempts >= most_attempts then
  bury(lane, id, after, 'it was released after its last attempt')
  save()
else
  line_up(lane, {after}, true)
  save()
  wake_idle(1)
end
return {'released'}
