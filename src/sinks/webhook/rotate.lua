#!lua flags=allow-oom
-- Give a webhook a new secret. The one before it is used beside it for a while. Repeated after a lost answer it changes nothing.
--
-- ARGV[9] name        of the subscription
-- ARGV[10] secret      the new one
-- ARGV[11] overlap_ms  how long the one before goes on being used
--
-- Replies {'done'} or {'gone'}, when there is no such webhook

local name, secret, overlap_ms = ARGV[9], ARGV[10], tonumber(ARGV[11])
local known_of_it = redis.call('HGET', definitions, name)
if not known_of_it then return {'gone'} end
local secrets = secrets_in(known_of_it)
redis.call('HSET', definitions, name, with_secret(secrets, secret, overlap_ms) .. sub(known_of_it, #secrets + 1))
return {'done'}
