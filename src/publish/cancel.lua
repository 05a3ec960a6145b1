#!lua flags=allow-oom
-- Take back a delayed event that is not in the log yet.
--
-- KEYS[1] delayed         zset  number -> µs at which it is due
-- KEYS[2] delayed_events  hash  number -> envelope
-- ARGV[1] number
--
-- Replies {'cancelled'}
--         {'gone'}       it is in the log, was cancelled before, or never was

local delayed, delayed_events = KEYS[1], KEYS[2]
local number = ARGV[1]

if redis.call('ZREM', delayed, number) == 0 then return {'gone'} end
redis.call('HDEL', delayed_events, number)
return {'cancelled'}
