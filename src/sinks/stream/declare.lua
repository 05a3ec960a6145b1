#!lua flags=allow-oom
-- Give a processor its first cursors, once and for all partitions together.
--
-- KEYS[1] cursors  hash  partition -> seq up to which everything is done
-- ARGV[1…]         per partition: its number, the cursor
--
-- Replies {'created'}, or {'known'} when it had cursors already; they stay as they are

local cursors = KEYS[1]

if redis.call('EXISTS', cursors) == 1 then return {'known'} end
redis.call('HSET', cursors, unpack(ARGV))
return {'created'}
