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

local lease = read_lease(token)
local i = lease and place_in(lease, id)
if not i then
  -- Sent again because its answer was lost.
  lease = read_lease(own_token)
  i = lease and place_in(lease, id)
end
if not i then return {'stale'} end
local field, name = lease.fields[i], lease.names[i]

if ms > 0 then
  if lease.token ~= own_token then
    release(lease, i)
    write_lease(lease)
    redis.call('SET', held_prefix .. own_token, lease_text(lease.holder, {field}, {id}, {is_ordered and lease.keys[i]}))
    if track then
      track.holds(id, own_token)
      track.save()
    end
  end
  redis.call('ZADD', leases, now + ms, own_token)
  return {'extended', own_token, format('%.0f', now + ms)}
end

release(lease, i)
write_lease(lease)
local after, attempts = tried(redis.call('HGET', items_at, field), lease.claimed)
local lane = lane_of(name)
held_of[lane] = held_of[lane] - 1
count('held', -1)
local released_reason = 'it was released after its last attempt'
if track and track.wants_cancelled(id) then
  redis.call('HDEL', items_at, field)
  track.gives_away(lane, id)
  if is_ordered then pass_on({lane}, {lease.keys[i]}) end
  save()
  wake_idle(1)
elseif most_attempts > 0 and attempts >= most_attempts then
  redis.call('HDEL', items_at, field)
  if give_up(lane, id, after, released_reason) and is_ordered then pass_on({lane}, {lease.keys[i]}) end
  save()
  wake_idle(1)
else
  if track then track.retries(id, 'it was released') end
  redis.call('HSET', items_at, field, after)
  put_back({{id = id, field = field, name = name, item = after}})
  save()
  wake_idle(1)
end
return {'released'}
