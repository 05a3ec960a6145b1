#!lua
-- Append one plain event of a process to a partition, and if all before it is routed and nothing waits in the queue that alone wants it, give
-- it to the claim that comes with it: one way to Redis instead of two. The log and the queue lie in two slots: not for a cluster.
--
-- KEYS[7] log        stream  see publish.lua
-- KEYS[8] meta       hash
-- KEYS[9] heads      hash
-- KEYS[10] heads_old hash
-- ARGV[3] place  "<partition> <seq up to which it is routed>"
-- ARGV[4] said   of the publish: its words, see publish-one.lua
-- ARGV[5] record
-- ARGV[6] object
--
-- Replies {'stored', last_seq, prev, before}  stored, and left to the router
--         {'stored', last_seq, prev, before, "<revision> <now> <due>", item}  given as well; due: ms until something is, -1 for nothing
--         {'late'} or {'whole'}  as publish-one.lua does; nothing written

local log, meta, heads, heads_old = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local place, said, record, object = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local partition, after = match(place, '^(%d+) (%d+)$')

local reply = append(log, meta, heads, heads_old, said, record, object)
if reply[1] ~= 'stored' or reply[4] ~= after then return reply end
local seq = reply[2]
local id = partition .. '-' .. seq
local item = id .. ' 0 ' .. lane .. ' 0 0 ' .. string.sub(seq, 1, -4) .. ' 0 ' .. reply[3] .. '\n' .. string.sub(record, 2)
local replies = lend(id, seq, item)
if not replies then return reply end
local claimed = replies[2]
-- Few words: to read each takes Node a microsecond.
reply[5], reply[6] = its_revision .. ' ' .. claimed[3] .. ' ' .. claimed[5], item
return reply
