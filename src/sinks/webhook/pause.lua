#!lua flags=allow-oom
-- Stop delivering to a webhook, or go on. What arrives meanwhile is kept.
--
-- ARGV[9] act   'pause'; 'resume', also of one that is disabled: what waits to be tried again is tried at once
-- ARGV[10] name  of the subscription
--
-- Replies {'done'} or {'gone'}, when there is no such webhook

local act, name = ARGV[9], ARGV[10]
local hook = hook_of(name)
if not revision or not hook then return {'gone'} end

local lane = lane_of(name)
redis.call('ZREM', later, '@' .. name)
if act == 'resume' then
  redis.call('HDEL', hook.key, 'paused', 'disabled', 'disabledAt')
  set_tally(hook, 'failures', 0)
  set_tally(hook, 'failingSince', 0)
  redis.call('SREM', announced, name)
  not_before[lane] = 0
  enters(lane)
  for _, field in ipairs(redis.call('HKEYS', hook.key)) do
    local id = match(field, '^later:') and redis.call('HGET', hook.key, field)
    if id then redis.call('ZADD', later, 'XX', now, id) end
  end
else
  redis.call('HSETNX', hook.key, 'paused', format('%.0f', now))
  not_before[lane] = forever
end
save_hooks()
save()
if act == 'resume' then wake_idle(1) end
return {'done'}
