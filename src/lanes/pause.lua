#!lua flags=allow-oom
-- Stop giving, or go on. What arrives meanwhile waits.
--
-- ARGV[6] act  'pause' or 'resume'
--
-- Replies {'done'} or {'gone'}, when there is no such store

if not revision then return {'gone'} end
redis.call('HSET', store, 'paused', ARGV[6] == 'pause' and 1 or 0)
if ARGV[6] == 'resume' then wake_idle(tonumber(redis.call('HGET', store, 'waiting') or 0)) end
return {'done'}
