#!lua flags=allow-oom,no-writes
-- Find one event by its seq.
--
-- KEYS[1] log  stream  an entry: prevs joined by spaces, '' where the number of fields would be odd, envelopes
-- ARGV[1] seq
--
-- Replies {'found', prev, envelope} or {'missing'}

local log, seq = KEYS[1], tonumber(ARGV[1])

-- The nth of the prevs: those of the events before it end with a space each.
local function prev_at(prevs, n)
  local from = 1
  for _ = 2, n do from = string.find(prevs, ' ', from, true) + 1 end
  return string.match(prevs, '^%d*', from)
end

-- An entry's id is the seq of its last event, so the event can only be in the first entry at or above it.
local entry = redis.call('XRANGE', log, ARGV[1], '+', 'COUNT', 1)[1]
if not entry then return {'missing'} end
local fields = entry[2]
local behind = tonumber(string.match(entry[1], '^%d+')) - seq
local at = #fields - behind
if at < 2 or fields[at] == '' then return {'missing'} end
return {'found', prev_at(fields[1], at - (fields[2] == '' and 2 or 1)), fields[at]}
