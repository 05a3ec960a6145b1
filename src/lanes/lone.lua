#!lua flags=allow-oom
-- Take one event into a queue in which nothing waits, and give it to the claim that comes with it.
--
-- ARGV[3] seq   of the event
-- ARGV[4] item
--
-- Replies {{'accepted', 1}, {'claimed', revision, now, more, due, item}}  as those acts do
--         {}  there is more to be looked at: work.lua does it; nothing written

local seq, item = ARGV[3], ARGV[4]
local id = string.match(item, '^(%S+) 0 ')
return id and lend(id, seq, item) or {}
