#!lua flags=allow-oom
-- Give a webhook a new secret. The one before it is used beside it for a while. Repeated after a lost answer it changes nothing.
--
-- ARGV[9] name        of the subscription
-- ARGV[10] secret      the new one
-- ARGV[11] overlap_ms  how long the one before goes on being used
--
-- Replies {'done'} or {'gone'}, when there is no such webhook

local name, secret, overlap_ms = ARGV[9], ARGV[10], tonumber(ARGV[11])
local key = hook_prefix .. name
local secrets = redis.call('HGET', key, 'secrets')
if not secrets then return {'gone'} end
redis.call('HSET', key, 'secrets', with_secret(secrets, secret, overlap_ms))
return {'done'}
