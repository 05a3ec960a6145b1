#!lua flags=allow-oom
-- Let parked objects go on, or give them up with all that lies behind them.
--
-- ARGV[6] act       'resume': the item that failed lines up as if never tried; 'discard'
-- ARGV[7…] objects  lane .. ' ' .. key each
--
-- Replies {'done', objects, items, more}  how many of them were parked, with how many items; more: 1 when some of what lies behind
--                                         them is left, and they are still parked: ask again
--         {'gone'}                        there is no such store; what is left of it is not touched any more

local act = ARGV[6]
local parked_ones, items, pieces, is_more = 0, 0, 1000, 0

if not revision then return {'gone'} end

-- The oldest of what lies behind the object, as far as there is time for it. Answers whether that was all.
local function discard_behind(lane, field)
  load_objects({field})
  local places = {}
  while first_behind[field] < next_behind[field] and pieces > 0 do
    places[#places + 1] = field .. ' ' .. struct.pack('>I6', first_behind[field])
    first_behind[field], pieces = first_behind[field] + 1, pieces - 1
  end
  if #places > 0 then
    for _, item in ipairs(redis.call('HMGET', behind, unpack(places))) do
      bytes_of[lane] = bytes_of[lane] - #item
      if track then
        track.unmark(match(item, '^%S+'))
        track.cancels(match(item, '^%S+'), 'it was discarded with its parked object')
      end
      count('bytes', -#item)
    end
    redis.call('HDEL', behind, unpack(places))
  end
  behind_of[lane], left_of[lane], items = behind_of[lane] - #places, left_of[lane] + #places, items + #places
  count('behind', -#places)
  count('discarded', #places)
  return first_behind[field] == next_behind[field]
end

local function ends(lane, field)
  redis.call('HDEL', parked, field)
  parked_of[lane], parked_ones, items = parked_of[lane] - 1, parked_ones + 1, items + 1
end

for i = 7, #ARGV do
  local field = ARGV[i]
  local letter = redis.call('HGET', parked, field)
  if letter then
    local item = match(letter, '^%d+\30[^\30]*\30(.*)$')
    local lane = lane_of(lane_name_of(item))
    if act == 'resume' then
      ends(lane, field)
      item = untried(item)
      if track then track.begins_anew(match(item, '^%S+'), item) end
      line_up(lane, item, priority_of(item, name_of[lane]))
    elseif discard_behind(lane, field) then
      ends(lane, field)
      first_behind[field], left_of[lane] = false, left_of[lane] + 1
      count('discarded', 1)
    else
      is_more = 1
    end
  end
end
save()
if act == 'resume' then wake_idle(parked_ones) end
return {'done', parked_ones, items, is_more}
