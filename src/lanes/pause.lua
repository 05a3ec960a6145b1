#!lua flags=allow-oom
-- Stop giving, or go on, with all of the queue or one of its lanes. What arrives meanwhile waits.
--
-- ARGV[6] act   'pause' or 'resume'
-- ARGV[7] name  of the lane; '' for the whole queue
--
-- Replies {'done'} or {'gone'}, when there is no such store

local act, name = ARGV[6], ARGV[7]

if not revision then return {'gone'} end

if name ~= '' then
  local lane = lane_of(name)
  not_before[lane] = act == 'pause' and forever or 0
  redis.call('ZREM', later, '@' .. name)
  if act == 'resume' then enters(lane) end
  save()
  if act == 'resume' then wake_idle(math.min(waits_in(lane), 1000)) end
elseif act == 'pause' then
  if not paused then redis.call('HSET', store, 'paused', 1, 'pausedAt', format('%.0f', now)) end
else
  redis.call('HDEL', store, 'paused', 'pausedAt')
  paused = false
  wake_idle(tonumber(redis.call('HGET', store, 'waiting') or 0))
end
return {'done'}
