#!lua flags=allow-oom
-- Open a namespace: create its record on first use, answer what is stored.
--
-- KEYS[1] namespace   hash  partitions, tags, retention
-- ARGV[1] asked       partition count that the caller insists on, '' = any
-- ARGV[2] partitions  count for a new namespace
-- ARGV[3] tags        its hash tags, joined by commas
-- ARGV[4] retention   JSON to store, '' = leave what is stored
--
-- Replies {'opened', tags}
--         {'mismatch', stored partitions}   nothing written

local namespace = KEYS[1]
local asked, partitions, tags, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local stored = redis.call('HMGET', namespace, 'partitions', 'tags')
if stored[1] and asked ~= '' and asked ~= stored[1] then return {'mismatch', stored[1]} end
if not stored[1] then redis.call('HSET', namespace, 'partitions', partitions, 'tags', tags) end
if retention ~= '' then redis.call('HSET', namespace, 'retention', retention) end

return {'opened', stored[2] or tags}
