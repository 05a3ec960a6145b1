#!lua flags=allow-oom,no-writes
-- Find one event by its seq.
--
-- KEYS[1] log  stream
-- ARGV[1] seq
--
-- Replies {'found', prev, envelope} or {'missing'}

local log, seq = KEYS[1], tonumber(ARGV[1])

-- An entry's id is the seq of its last event, so the event can only be in the first entry at or above it.
local entry = redis.call('XRANGE', log, ARGV[1], '+', 'COUNT', 1)[1]
if not entry then return {'missing'} end
local fields = entry[2]
local behind = tonumber(string.match(entry[1], '^%d+')) - seq
local at = #fields - 2 * behind
if at < 2 then return {'missing'} end
return {'found', fields[at - 1], fields[at]}
