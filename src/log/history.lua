#!lua flags=allow-oom,no-writes
-- Walk an object's chain backwards, a bounded number of steps.
--
-- KEYS[1] log        stream  an entry: prevs joined by spaces, '' where the number of fields would be odd, envelopes
-- KEYS[2] heads      hash  object -> seq of its last event
-- KEYS[3] heads_old  hash  the generation before
-- ARGV[1] object
-- ARGV[2] from       seq of the event to begin with, '' = the object's head
-- ARGV[3] limit      at most this many events
--
-- Replies seq, prev, envelope of each event, newest first, in one flat list

local log, heads, heads_old = KEYS[1], KEYS[2], KEYS[3]
local object, from, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- The nth of the prevs: those of the events before it end with a space each.
local function prev_at(prevs, n)
  local from = 1
  for _ = 2, n do from = string.find(prevs, ' ', from, true) + 1 end
  return string.match(prevs, '^%d*', from)
end

local function find(seq)
  local entry = redis.call('XRANGE', log, seq, '+', 'COUNT', 1)[1]
  if not entry then return end
  local fields = entry[2]
  local at = #fields - (tonumber(string.match(entry[1], '^%d+')) - tonumber(seq))
  if at >= 2 and fields[at] ~= '' then return prev_at(fields[1], at - (fields[2] == '' and 2 or 1)), fields[at] end
end

local reply = {}
local seq = from ~= '' and from or redis.call('HGET', heads, object) or redis.call('HGET', heads_old, object)
while seq and seq ~= '' and #reply < 3 * limit do
  local prev, envelope = find(seq)
  if not prev then break end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = seq, prev, envelope
  seq = prev
end
return reply
