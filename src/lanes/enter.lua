#!lua flags=allow-oom
-- A worker begins under a name that it will have again after a restart, or ends. What other starts of that name hold goes back
-- to the heads of their lanes as if never claimed, and they are stale from now on. What someone wants cancelled is gone.
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
-- Of the store, of which some hundred at most are not names. Who is forgotten loses nothing but its fence against an earlier self.
local most_fields = 1500

if not revision then return {'gone'} end
if act == 'leave' then
  if redis.call('HGET', store, field) == start then redis.call('HDEL', store, field) end
  return {'left'}
end

local back, gone, lanes_of_gone = {}, {}, {}
for _, token in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
  -- Its holder is in the first words.
  local its_worker, its_start = match(redis.call('GETRANGE', held_prefix .. token, 0, 600), '^(%S+) (%S+) ')
  if its_worker == worker and its_start ~= start then
    local lease = read_lease(token)
    for i, item in ipairs(items_of(lease, 1, lease.size)) do
      local lane = lane_of(lease.names[i])
      held_of[lane] = held_of[lane] - 1
      if track and track.wants_cancelled(lease.ids[i]) then
        redis.call('HDEL', items_at, lease.fields[i])
        track.gives_away(lane, lease.ids[i])
        gone[#gone + 1], lanes_of_gone[#lanes_of_gone + 1] = is_ordered and lease.keys[i] or no_key, lane
      else
        if track then track.returns(lease.ids[i]) end
        back[#back + 1] = {id = lease.ids[i], field = lease.fields[i], name = lease.names[i], item = item}
      end
      release(lease, i)
    end
    write_lease(lease)
  end
end
put_back(back)
local next_ones = is_ordered and pass_on(lanes_of_gone, gone) or 0
count('held', -(#back + #gone))
-- Names of those who never left, that nobody will have again.
if redis.call('HLEN', store) > most_fields then
  for _, name in ipairs(redis.call('HKEYS', store)) do
    if sub(name, 1, 7) == 'worker:' then redis.call('HDEL', store, name) end
  end
end
redis.call('HSET', store, field, start)
save()
-- Where there are limits others may hold more now.
wake_idle(#back + next_ones + (limits and #gone or 0))
return {'entered', #back}
