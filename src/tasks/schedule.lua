#!lua flags=allow-oom
-- Store what a schedule is. One that is stored alike goes on where it is; a new or a changed one begins now.
--
-- KEYS[1] schedules  hash  name -> "<ms up to which its ticks are fired> <definition as JSON>"
-- ARGV[1] now_ms      '' means the server's clock (tests pass a number)
-- ARGV[2] name
-- ARGV[3] definition  JSON, the same text for the same schedule
-- ARGV[4] most        how many schedules there may be
-- ARGV[5] due         channel on which the leader hears that there is something new
--
-- Replies {'kept'}    it was stored alike
--         {'stored'}  new, or other than before
--         {'full'}    there are as many as there may be; nothing written

local schedules = KEYS[1]
local now_ms, name, definition, most, due = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]

if not now_ms then
  local time = redis.call('TIME')
  now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end

local stored = redis.call('HGET', schedules, name)
if stored and string.match(stored, '^%d+ (.*)$') == definition then return {'kept'} end
if not stored and redis.call('HLEN', schedules) >= most then return {'full'} end
redis.call('HSET', schedules, name, string.format('%.0f ', now_ms) .. definition)
redis.call('PUBLISH', due, 'schedules')
return {'stored'}
