#!lua flags=allow-oom
-- Take the next event of a partition from the log into a queue in which nothing waits, and give it to the claim that comes with it. Sent
-- right behind a publish, on its connection, this makes one way to Redis of two. The log and the queue lie in two slots: not for a cluster.
--
-- KEYS[7] log   stream  see publish.lua
-- KEYS[8] meta  hash
-- ARGV[3] partition
-- ARGV[4] after  seq up to which the partition is routed
-- ARGV[5] kind   with which the envelopes begin that this queue alone wants
--
-- Replies {{'accepted', seq}, {'claimed', revision, now, more, due, item}}
--         {}  there is no such event, or more to be looked at; nothing written

local log, meta = KEYS[7], KEYS[8]
local partition, after, kind = ARGV[3], ARGV[4], ARGV[5]

local entry = redis.call('XRANGE', log, '(' .. after .. '-0', '+', 'COUNT', 1)[1]
if not entry then return {} end
local seq, prev, record = string.match(entry[1], '^%d+'), entry[2][1], entry[2][2]
if string.find(prev, ' ', 1, true) or string.sub(record, 2, #kind + 1) ~= kind then return {} end
-- What was trimmed unseen is told of by whoever reads on.
if tonumber(redis.call('HGET', meta, 'trimmed') or 0) > tonumber(after) then return {} end

local id = partition .. '-' .. seq
local item = id .. ' 0 ' .. lane .. ' 0 0 ' .. string.sub(seq, 1, -4) .. ' 0 ' .. prev .. '\n' .. string.sub(record, 2)
local replies = lend(id, seq, item)
if not replies then return {} end
replies[1][2] = seq
return replies
