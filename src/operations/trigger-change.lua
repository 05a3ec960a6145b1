#!lua flags=allow-oom
-- Change a trigger, or take it away. Each may be repeated after a lost answer.
--
-- KEYS[1] triggers        hash  trigger -> "<hash of its secret> <1 enabled or 0> <made ms> <secret given ms> <definition, JSON>"
-- KEYS[2] trigger_secrets hash  hash of a secret -> trigger
-- ARGV[1] act   'rotate': another secret; 'enable', 'disable', 'remove'
-- ARGV[2] name
-- ARGV[3] now   ms; '' means the server's clock (tests pass a number)
-- ARGV[4] hash  of the new secret; '' where none is given
--
-- Replies {'done', text}   as it is stored now, or was before it was taken away
--         {'unknown'}      there is none of that name; nothing written

local triggers, trigger_secrets = KEYS[1], KEYS[2]
local act, name, now, new_hash = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end

local stored = redis.call('HGET', triggers, name)
if not stored then return {'unknown'} end

local hash, enabled, made, given, its_definition = string.match(stored, '^(%S+) (%d) (%d+) (%d+) (.*)$')
if act == 'remove' then
  redis.call('HDEL', triggers, name)
  redis.call('HDEL', trigger_secrets, hash)
  return {'done', stored}
end
if act == 'rotate' then
  redis.call('HDEL', trigger_secrets, hash)
  redis.call('HSET', trigger_secrets, new_hash, name)
  hash, given = new_hash, now
else
  enabled = act == 'enable' and '1' or '0'
end
stored = table.concat({hash, enabled, made, given, its_definition}, ' ')
redis.call('HSET', triggers, name, stored)
return {'done', stored}
