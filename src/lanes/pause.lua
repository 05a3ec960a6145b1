#!lua flags=allow-oom
-- Stop giving, or go on. What arrives meanwhile waits.
--
-- ARGV[6] act  'pause' or 'resume'
--
-- Replies {'done'} or {'gone'}, when there is no such store

local act = ARGV[6]

if not revision then return {'gone'} end
if act == 'pause' then
  if not paused then redis.call('HSET', store, 'paused', 1, 'pausedAt', format('%.0f', now)) end
else
  redis.call('HDEL', store, 'paused', 'pausedAt')
  paused = false
  wake_idle(tonumber(redis.call('HGET', store, 'waiting') or 0))
end
return {'done'}
