#!lua flags=allow-oom
-- Drop the oldest dead batches of a shard, to have memory again.
--
-- ARGV[9] bytes  so many, or a little more
-- ARGV[10] most  batches at once
--
-- Replies {'dropped', subscription, events, bytes, …}  of each that lost some

local bytes, most = tonumber(ARGV[9]), tonumber(ARGV[10])
local dropped = revision and drop_letters(bytes, most, events_in) or {}
if #dropped > 0 then
  save_hooks()
  save()
end
return {'dropped', unpack(dropped)}
