#!lua flags=allow-oom
-- Stop giving, or go on. What arrives meanwhile waits.
--
-- ARGV[6] act  'pause' or 'resume'
--
-- Replies {'done'} or {'gone'}, when there is no such store

if not revision then return {'gone'} end
local act = ARGV[6]
if act == 'pause' and not paused then redis.call('HSET', store, 'paused', 1, 'pausedAt', format('%.0f', now)) end
if act == 'resume' then redis.call('HDEL', store, 'paused', 'pausedAt') end
if act == 'resume' then wake_idle(tonumber(redis.call('HGET', store, 'waiting') or 0)) end
return {'done'}
