#!lua flags=allow-oom,no-writes
-- Find one event by its seq.
--
-- KEYS[1] log  stream  an entry: the prevs of its events joined by spaces, and their records
-- ARGV[1] seq
--
-- Replies {'found', prev, envelope} or {'missing'}

local log, seq = KEYS[1], tonumber(ARGV[1])

-- The nth of the texts that `separator` parts; nil when there are fewer. Before the first record there is an empty one.
local function nth(joined, separator, n)
  local from, to = 1, 0
  for _ = 1, n do
    if not to then return end
    from = to + 1
    to = string.find(joined, separator, from, true)
  end
  return string.sub(joined, from, (to or 0) - 1)
end

-- How many texts are joined.
local function count(joined, separator) return select(2, string.gsub(joined, separator, '')) + 1 end

-- An entry's id is the seq of its last event, so the event can only be in the first entry at or above it.
local entry = redis.call('XRANGE', log, ARGV[1], '+', 'COUNT', 1)[1]
if not entry then return {'missing'} end
local prevs, records = entry[2][1], entry[2][2]
local n = count(prevs, ' ') - (tonumber(string.match(entry[1], '^%d+')) - seq)
if n < 1 then return {'missing'} end
return {'found', nth(prevs, ' ', n), nth(records, '\30', n + 1)}
