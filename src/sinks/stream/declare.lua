#!lua flags=allow-oom
-- Give a processor its first cursors, once and for all partitions together.
--
-- KEYS[1] cursors  hash  partition -> seq up to which everything is done
-- ARGV[1…]         per partition: its number, the cursor
--
-- Replies {'created'}, or {'known'} when it had cursors already; they stay as they are

local cursors = KEYS[1]

if redis.call('EXISTS', cursors) == 1 then return {'known'} end
for i = 1, #ARGV, 2 do redis.call('HSET', cursors, ARGV[i], ARGV[i + 1]) end
return {'created'}
