#!lua flags=allow-oom
-- Cancel an operation. One that waits for a time is gone at once, one that waits in line when it comes up; of one that is held, its holder
-- hears on the channel of its queue: whatever it says then but that it is done, it is not tried again.
--
-- ARGV[6] id  of its item
--
-- Replies {'cancelled'}     it had not begun, and will not
--         {'asked'}         it is held
--         {'ended'}         it had ended before; nothing changed
--         {'unknown'}       there is no such operation, or none any more
--         {'gone'}          there is no such store

local id = ARGV[6]

if not revision then return {'gone'} end
local state = track and track.state(id)
if not state then return {'unknown'} end
if state > 2 then return {'ended'} end

if state == 2 then
  track.mark(id)
  redis.call('PUBLISH', wake, 'cancel ' .. id)
  return {'asked'}
end

local ready = 0
local item = redis.call('HGET', later_items, id)
if item then
  local lane = lane_of(lane_name_of(item))
  redis.call('HDEL', later_items, id)
  redis.call('ZREM', later, id)
  later_of[lane] = later_of[lane] - 1
  track.gives_away(lane, id)
  -- One that was tried before is its key's owner.
  if is_ordered and match(item, '^%S+ %d+ %S+ (%d+) ') ~= '0' then ready = pass_on({lane}, {key_of(item, name_of[lane])}) end
else
  track.mark(id)
  track.cancels(id)
end
save()
if ready > 0 then wake_idle(ready) end
return {'cancelled'}
