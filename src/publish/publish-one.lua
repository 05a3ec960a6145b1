#!lua
-- Append one plain event of a process to a partition: the path of latency. The same as publish.lua does, with few keys and arguments.
--
-- KEYS[1] log        stream  see publish.lua
-- KEYS[2] meta       hash
-- KEYS[3] heads      hash    object -> seq of its last event
-- KEYS[4] heads_old  hash    the generation of heads before; there only while meta has headsClosed
-- ARGV[1] words   with spaces between them: process, n, floor, wake; as of publish.lua
-- ARGV[2] record  a record separator and the envelope
-- ARGV[3] object  "<tenant>/<key>", '' without key
--
-- Replies {'stored', last_seq, prev, before}  before: the partition's last seq before it
--         {'late'}   a flush with a higher n was here before; nothing written
--         {'whole'}  there is more to be looked at: publish.lua does it; nothing written

local log, meta, heads, heads_old = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local words, record, object = ARGV[1], ARGV[2], ARGV[3]

return append(log, meta, heads, heads_old, words, record, object)
