#!lua flags=allow-oom
-- A worker begins under a name that it will have again after a restart, or ends. What other starts of that name hold goes back
-- to the heads of their lanes as if never claimed, and they are stale from now on.
--
-- ARGV[6] act     'enter' or 'leave'
-- ARGV[7] worker  its name
-- ARGV[8] start   random, new with every start
--
-- Replies {'entered', items}  how many were handed back
--         {'left'}
--         {'gone'}            there is no such store

local act, worker, start = ARGV[6], ARGV[7], ARGV[8]
local field = 'worker:' .. worker

if not revision then return {'gone'} end
if act == 'leave' then
  if redis.call('HGET', store, field) == start then redis.call('HDEL', store, field) end
  return {'left'}
end

local items, flat = {}, redis.call('HGETALL', holders)
for i = 1, #flat, 2 do
  local token = flat[i]
  local its_worker, its_start = match(flat[i + 1], '^(%S+) (%S+) ')
  if its_worker == worker and its_start ~= start then
    for _, item in ipairs(redis.call('HVALS', held_prefix .. token)) do items[#items + 1] = item end
    redis.call('DEL', held_prefix .. token)
    redis.call('ZREM', leases, token)
    redis.call('HDEL', holders, token)
  end
end
put_back(items)
for _, item in ipairs(items) do
  local lane = loaded[lane_name_of(item)]
  held_of[lane] = held_of[lane] - 1
end
count('held', -#items)
redis.call('HSET', store, field, start)
save()
wake_idle(#items)
return {'entered', #items}
