#!lua flags=allow-oom
-- Stop delivering to a webhook, or go on. What arrives meanwhile is kept.
--
-- ARGV[9] act   'pause'; 'disable', which is announced; 'resume' from either: what waits to be tried again is tried at once
-- ARGV[10] name  of the subscription
-- ARGV[11] why   it is disabled
--
-- Replies {'done'} or {'gone'}, when there is no such webhook

local act, name, why = ARGV[9], ARGV[10], ARGV[11]
local hook = hook_of(name)
if not revision or not hook then return {'gone'} end

local lane = lane_of(name)
redis.call('ZREM', later, '@' .. name)
if act == 'resume' then
  redis.call('HDEL', hook.key, 'paused', 'disabled', 'disabledAt', 'failures', 'failingSince')
  redis.call('SREM', announced, name)
  not_before[lane] = 0
  enters(lane)
  for _, field in ipairs(redis.call('HKEYS', hook.key)) do
    local id = match(field, '^later:') and redis.call('HGET', hook.key, field)
    if id then redis.call('ZADD', later, 'XX', now, id) end
  end
else
  if act == 'pause' then
    redis.call('HSETNX', hook.key, 'paused', format('%.0f', now))
  else
    redis.call('HSET', hook.key, 'disabled', why, 'disabledAt', format('%.0f', now))
    redis.call('SADD', announced, name)
  end
  not_before[lane] = forever
end
save()
if act == 'resume' then wake_idle(1) end
return {'done'}
