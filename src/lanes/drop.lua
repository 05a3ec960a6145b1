#!lua flags=allow-oom
-- Drop the oldest items that wait in a lane, to have memory again. What is held, waits for a time or lies behind another stays.
--
-- ARGV[6] name   of the lane
-- ARGV[7] bytes  so many, or a little more
-- ARGV[8] most   items at once
--
-- Replies {'dropped', items, bytes}

local name, bytes, most = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local items, freed = 0, 0
if revision then
  local lane = lane_of(name)
  local before = bytes_of[lane]
  while items < most and freed < bytes and drop_oldest(lane) do items, freed = items + 1, before - bytes_of[lane] end
  if items > 0 then save() end
end
return {'dropped', items, freed}
