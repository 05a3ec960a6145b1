#!lua flags=allow-oom
-- Take a store away in bounded steps: first what makes it one, so that nothing enters and nobody claims any more.
--
-- KEYS[15] remembered   hash  as in send.lua
-- KEYS[16] forget       zset  as in send.lua
-- ARGV[6] its_revision  of the removal: a store that was born after it belongs to a later subscription and stays
-- ARGV[7] most          how many lanes, or leases, per call
--
-- Replies {'more'} or {'removed'}

local remembered, forget = KEYS[15], KEYS[16]
local its_revision, most = tonumber(ARGV[6]), tonumber(ARGV[7])
if born and born > its_revision then return {'removed'} end
redis.call('DEL', store)

-- Any so many of them: a scan that begins anew with every call finds nothing where the calls before it have cleared.
local names = redis.call('HRANDFIELD', lanes, most)
local tokens = redis.call('ZRANGE', leases, 0, most - 1)
for _, name in ipairs(names) do
  redis.call('UNLINK', ranked_prefix .. name)
  redis.call('HDEL', lanes, name)
end
for _, token in ipairs(tokens) do redis.call('UNLINK', held_prefix .. token) end
if #tokens > 0 then redis.call('ZREM', leases, unpack(tokens)) end
-- What is left is what make.lua knows an unfinished removal by.
if redis.call('EXISTS', lanes, leases) > 0 then return {'more'} end

local base = sub(store, 1, -6)
redis.call('UNLINK', turns, lanes, weights, later, later_items, leases, items_at, dead, dead_order, idle,
  objects, behind, parked, remembered, forget, base .. 'ops', base .. 'opItems', base .. 'opsLast', base .. 'opsOf', base .. 'opNotes', base .. 'opsEnded', base .. 'opCounts',
  base .. 'opCancels')
return {'removed'}
