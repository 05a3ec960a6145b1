#!lua flags=allow-oom
-- Remove what retention no longer keeps from the start of one partition, whole entries, a bounded number of them.
--
-- KEYS[1] log        stream  an entry: the prevs of its events joined by spaces, and their records
-- KEYS[2] meta       hash  last, trimmed, events, bytes, lost, headsClosed
-- KEYS[3] heads      hash  object -> seq of its last event
-- KEYS[4] heads_old  hash  the generation before; there only while meta has headsClosed, the seq at which it was closed
-- KEYS[5] holds      hash  who needs the log -> "<seq>" or "<seq> <epoch>": everything above seq must stay
-- ARGV[1] age_seq     events up to this seq are too old
-- ARGV[2] max_events  events to keep at most
-- ARGV[3] max_bytes   bytes of envelopes to keep at most
-- ARGV[4] hard_factor holds give way when the log is this many times over max_events or max_bytes
-- ARGV[5] max_looks   look at about this many events
-- ARGV[6] look_bytes  and at about this many bytes of them
--
-- Replies {'trimmed', events removed, events removed above a hold, 'more' or 'done', name of the lowest hold or ''}

local log, meta, heads, heads_old, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local age_seq, max_events, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local hard_factor, max_looks, look_bytes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local function text(seq) return string.format('%.0f', seq) end

local known = redis.call('HMGET', meta, 'last', 'trimmed', 'events', 'bytes', 'lost', 'headsClosed')
local last, trimmed = tonumber(known[1] or 0), tonumber(known[2] or 0)
local events, bytes, lost = tonumber(known[3] or 0), tonumber(known[4] or 0), tonumber(known[5] or 0)

local hold, holder = math.huge, ''
local held = redis.call('HGETALL', holds)
for i = 1, #held, 2 do
  local seq = tonumber(string.match(held[i + 1], '^%d+'))
  if seq < hold then hold, holder = seq, held[i] end
end

local removed, removed_held, more = 0, 0, 'done'
local function events_of(fields) return select(2, string.gsub(fields[1], ' ', '')) + 1 end
local function seq_of(entry) return tonumber(string.match(entry[1], '^%d+')) end
local function is_over(factor) return events > max_events * factor or bytes > max_bytes * factor end
local function may_go(seq)
  if seq > hold then return is_over(hard_factor) end
  return is_over(1) or seq <= age_seq
end

-- Mostly there is nothing to remove, and the first entry shows it: reading all that a step may look at would cost the
-- publishers a tenth of their throughput.
local entries, max_entries = redis.call('XRANGE', log, '-', '+', 'COUNT', 1), 0
local first = entries[1]
if first and may_go(seq_of(first)) then
  local steps = math.max(1, events / max_looks, bytes / look_bytes)
  max_entries = math.floor(redis.call('XLEN', log) / steps) + 1
  entries = redis.call('XRANGE', log, '-', '+', 'COUNT', max_entries)
end
for i = 1, #entries do
  local seq, fields = seq_of(entries[i]), entries[i][2]
  if not may_go(seq) then break end
  local count = events_of(fields)
  if seq > hold then removed_held = removed_held + math.min(count, seq - hold) end
  removed, events = removed + count, events - count
  bytes = bytes - (#fields[2] - count) -- without the separators
  trimmed = seq
  if i == #entries and #entries == max_entries then more = 'more' end
end
if removed > 0 then
  redis.call('XTRIM', log, 'MINID', text(trimmed + 1))
  redis.call('HSET', meta, 'trimmed', text(trimmed), 'events', events, 'bytes', bytes, 'lost', lost + removed_held)
  first = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
end

-- A head may go only after its event: the old generation, once every event from before its closing is trimmed.
local kept_from = last + 1
if first then kept_from = seq_of(first) - events_of(first[2]) + 1 end
local closed = tonumber(known[6])
if trimmed > 0 and (not closed or kept_from > closed) then
  redis.call('UNLINK', heads_old)
  if redis.call('EXISTS', heads) == 1 then
    redis.call('RENAME', heads, heads_old)
    redis.call('HSET', meta, 'headsClosed', text(last))
  else
    redis.call('HDEL', meta, 'headsClosed')
  end
end

return {'trimmed', removed, removed_held, more, holder}
