#!lua flags=allow-oom
-- Record how far a schedule's ticks are fired.
--
-- KEYS[1] schedules  hash  name -> "<ms up to which its ticks are fired> <definition as JSON>"
-- ARGV[1] name
-- ARGV[2] definition  what was fired
-- ARGV[3] fired       ms
--
-- Replies {'done'}     the record never moves backwards: one that is further already stays
--         {'changed'}  it is another schedule by now, or none; nothing written

local schedules = KEYS[1]
local name, definition, fired = ARGV[1], ARGV[2], ARGV[3]

local stored = redis.call('HGET', schedules, name)
local before, current = string.match(stored or '', '^(%d+) (.*)$')
if current ~= definition then return {'changed'} end
if tonumber(fired) > tonumber(before) then redis.call('HSET', schedules, name, fired .. ' ' .. definition) end
return {'done'}
