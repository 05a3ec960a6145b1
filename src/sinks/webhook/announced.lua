#!lua flags=allow-oom
-- It was told that a webhook is disabled. If it was disabled anew meanwhile, that is still to be told.
--
-- ARGV[9] name         of the subscription
-- ARGV[10] disabled_at  ms at which it was disabled, as it was told; '' when it was not disabled any more
--
-- Replies {'done'} or {'changed'}: nothing written

local name, disabled_at = ARGV[9], ARGV[10]
if (redis.call('HGET', hook_prefix .. name, 'disabledAt') or '') ~= disabled_at then return {'changed'} end
redis.call('SREM', announced, name)
return {'done'}
