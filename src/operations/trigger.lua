#!lua
-- Put a trigger. A secret opens one trigger, and is only known by its hash.
--
-- KEYS[1] triggers        hash  trigger -> "<hash of its secret> <1 enabled or 0> <made ms> <secret given ms> <definition, JSON>"
-- KEYS[2] trigger_secrets hash  hash of a secret -> trigger
-- ARGV[1] name
-- ARGV[2] now         ms; '' means the server's clock (tests pass a number)
-- ARGV[3] hash        of its secret
-- ARGV[4] definition
-- ARGV[5] most        triggers there may be
--
-- Replies {'done', text}   as it is stored now, also when this very call had come before
--         {'there'}        there is one of that name; nothing written
--         {'full'}         there are as many as there may be; nothing written

local triggers, trigger_secrets = KEYS[1], KEYS[2]
local name, now, hash, definition, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end

local stored = redis.call('HGET', triggers, name)
-- Nobody else has this secret: the answer was lost.
if stored and string.match(stored, '^%S+') == hash then return {'done', stored} end
if stored then return {'there'} end
if redis.call('HLEN', triggers) >= most then return {'full'} end
stored = hash .. ' 1 ' .. now .. ' ' .. now .. ' ' .. definition
redis.call('HSET', triggers, name, stored)
redis.call('HSET', trigger_secrets, hash, name)
return {'done', stored}
