#!lua flags=allow-oom
-- Place a hold, or move it.
--
-- KEYS[1] holds  hash  name -> "<seq>" or "<seq> <epoch>": everything above this seq must stay
-- ARGV[1] name
-- ARGV[2] seq
-- ARGV[3] epoch  of the owner that says so; 0 where a hold has no owners that follow each other
--
-- Replies {'held'}, or {'kept'} when the hold was already at or above seq, or is a later owner's
--
-- Under the same epoch a hold moves only forward. A new owner says where it really begins, and that may be further back.

local holds, name, seq, epoch = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local held, holder = string.match(redis.call('HGET', holds, name) or '', '^(%d+) ?(%d*)$')
local held_epoch = tonumber(holder) or 0
if held and (held_epoch > epoch or (held_epoch == epoch and tonumber(held) >= seq)) then return {'kept'} end
redis.call('HSET', holds, name, epoch == 0 and ARGV[2] or ARGV[2] .. ' ' .. ARGV[3])
return {'held'}
