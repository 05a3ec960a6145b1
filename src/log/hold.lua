#!lua flags=allow-oom
-- Place a hold, or move it forward.
--
-- KEYS[1] holds  hash  name -> everything above this seq must stay
-- ARGV[1] name
-- ARGV[2] seq
--
-- Replies {'held'}, or {'kept'} when the hold was already at or above seq

local holds, name, seq = KEYS[1], ARGV[1], tonumber(ARGV[2])

local held = redis.call('HGET', holds, name)
if held and tonumber(held) >= seq then return {'kept'} end
redis.call('HSET', holds, name, ARGV[2])
return {'held'}
