#!lua flags=allow-oom
-- Let nothing be published to one partition until some time, while Redis is nearly full: also when it is over its limit already.
--
-- KEYS[1] meta        hash  closedUntil (ms)
-- ARGV[1] until_ms
--
-- Replies {'closed'}

local meta, until_ms = KEYS[1], ARGV[1]

redis.call('HSET', meta, 'closedUntil', until_ms)
return {'closed'}
