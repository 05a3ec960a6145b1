#!lua flags=allow-oom
-- After a rollback: make sure that no seq which a reader has already seen is given out again.
--
-- KEYS[1] meta  hash  last
-- ARGV[1] seen  highest seq that the reader has read from this log
--
-- Replies {'lifted', last before} or {'fine'}

local meta, seen = KEYS[1], tonumber(ARGV[1])

local last = redis.call('HGET', meta, 'last') or '0'
if tonumber(last) >= seen then return {'fine'} end
redis.call('HSET', meta, 'last', ARGV[1])
return {'lifted', last}
