#!lua flags=allow-oom,no-writes
-- Walk an object's chain backwards, a bounded number of steps.
--
-- KEYS[1] log        stream  an entry: the prevs of its events joined by spaces, and their records
-- KEYS[2] heads      hash  object -> seq of its last event
-- KEYS[3] heads_old  hash  the generation before
-- ARGV[1] object
-- ARGV[2] from       seq of the event to begin with, '' = the object's head
-- ARGV[3] limit      at most this many events
--
-- Replies seq, prev, envelope of each event, newest first, in one flat list

local log, heads, heads_old = KEYS[1], KEYS[2], KEYS[3]
local object, from, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

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

-- An entry's id is the seq of its last event, so an event can only be in the first entry at or above it.
local function find(seq)
  local entry = redis.call('XRANGE', log, seq, '+', 'COUNT', 1)[1]
  if not entry then return end
  local prevs, records = entry[2][1], entry[2][2]
  local _, spaces = string.gsub(prevs, ' ', '')
  local n = spaces + 1 - (tonumber(string.match(entry[1], '^%d+')) - tonumber(seq))
  if n >= 1 then return nth(prevs, ' ', n), nth(records, '\30', n + 1) end
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
