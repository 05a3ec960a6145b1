#!lua flags=allow-oom
-- Count the events of one partition between two seqs, a bounded number of entries at a time.
--
-- KEYS[1] log          stream  an entry: the prevs of its events joined by spaces, and their records
-- ARGV[1] after        count what lies above this seq
-- ARGV[2] up_to        and not above this one
-- ARGV[3] max_entries  look at so many entries
--
-- Replies {'counted', events, seq up to which it has counted, 'more' or 'done'}

local log, after, up_to, max_entries = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local entries = redis.call('XRANGE', log, '(' .. ARGV[1] .. '-0', '+', 'COUNT', max_entries)
local events, reached = 0, after
for i = 1, #entries do
  local fields = entries[i][2]
  local last = tonumber(string.match(entries[i][1], '^%d+'))
  local first = last - select(2, string.gsub(fields[1], ' ', ''))
  local from, to = math.max(first, after + 1), math.min(last, up_to)
  if from <= to then events = events + to - from + 1 end
  reached = to
  if last >= up_to then return {'counted', events, string.format('%.0f', up_to), 'done'} end
end
return {'counted', events, string.format('%.0f', reached), #entries == max_entries and 'more' or 'done'}
