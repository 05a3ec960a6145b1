#!lua flags=allow-oom
-- Drop the oldest dead letters of a store, to have memory again.
--
-- ARGV[6] bytes  so many, or a little more
-- ARGV[7] most   letters at once
--
-- Replies {'dropped', lane, letters, bytes, …}  of each lane that lost some

local bytes, most = tonumber(ARGV[6]), tonumber(ARGV[7])
local dropped = revision and drop_letters(bytes, most, function() return 1 end) or {}
if #dropped > 0 then save() end
return {'dropped', unpack(dropped)}
