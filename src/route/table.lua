#!lua flags=allow-oom
-- What a router has to know, at one instant: the definitions that have changed, and where everyone is.
--
-- KEYS[1] group          hash  revision: the highest that was given out; forgotten: the highest whose removal is not known any more
-- KEYS[2] subscriptions  hash  name -> "<revision> <born> <definition>"
-- KEYS[3] changes        zset  name -> revision of its last change; removed ones too
-- KEYS[4] own            hash  "<partition> <name>" -> "<seq> <revision>"
-- KEYS[5] cursors        hash  partition -> seq of the main cursor
-- KEYS[6] removing       hash  name -> "<revision> <at ms> <kind>": its store is being taken away
-- ARGV[1] known          the revision up to which the router knows the table
--
-- Replies {'whole', revision, definitions, cursors, own, removing}    all definitions: what is not among them is gone
--         {'changes', revision, definitions, cursors, own, removing}  those that changed; with '' those that are gone
--         each of the four: a list of keys and values

local group, subscriptions, changes, own, cursors, removing = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local known = ARGV[1]

local revision = redis.call('HGET', group, 'revision') or '0'
local forgotten = redis.call('HGET', group, 'forgotten') or '0'
local places, owns, marks = redis.call('HGETALL', cursors), redis.call('HGETALL', own), redis.call('HGETALL', removing)
-- A router that knows more than there is has seen what a rollback took.
local is_whole = tonumber(known) < tonumber(forgotten) or tonumber(known) > tonumber(revision)
if is_whole then return {'whole', revision, redis.call('HGETALL', subscriptions), places, owns, marks} end

local definitions = {}
if known ~= revision then
  for _, name in ipairs(redis.call('ZRANGE', changes, '(' .. known, '+inf', 'BYSCORE')) do
    definitions[#definitions + 1] = name
    definitions[#definitions + 1] = redis.call('HGET', subscriptions, name) or ''
  end
end
return {'changes', revision, definitions, places, owns, marks}
