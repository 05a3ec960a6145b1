#!lua flags=allow-oom
-- The store of a removed subscription is gone: its name is free again.
--
-- KEYS[1] removing  hash  name -> "<revision> <at ms> <kind>": its store is being taken away
-- ARGV[1] name
-- ARGV[2] mark      as it was when the store was taken away
--
-- Replies {'free'}, or {'kept'} when there is no such mark: another one has finished it, and perhaps a later one was begun

local removing, name, mark = KEYS[1], ARGV[1], ARGV[2]

if redis.call('HGET', removing, name) ~= mark then return {'kept'} end
redis.call('HDEL', removing, name)
return {'free'}
