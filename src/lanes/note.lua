#!lua flags=allow-oom
-- Keep what a handler says of its operation while it runs: how far it is, and lines for people. Of the lines the last ones are kept.
--
-- ARGV[6] token      under which the item is held
-- ARGV[7] id
-- ARGV[8] list       for which they were looked through (redact.ts); those for another one are not kept
-- ARGV[9] progress   JSON; '' for none
-- ARGV[10…] lines    without \30 in them
--
-- Replies {'noted'}
--         {'stale'}  not held under this token, or not tracked; nothing written
--         {'gone'}   there is no such store

local token, id, list, progress = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local most_lines, most_bytes = 100, 16384

if not revision then return {'gone'} end
local state, its_token, name = nil, nil, nil
if track then state, its_token, name = track.state(id) end
if state ~= 2 or its_token ~= token then return {'stale'} end
if not track.keeps(list) then return {'noted'} end

local notes = sub(store, 1, -6) .. 'opNotes'
local before = redis.call('HGET', notes, name) or '\30'
local its_progress, lines_before = match(before, '^([^\30]*)\30(.*)$')
local lines, bytes = {}, 0
for line in string.gmatch(lines_before, '([^\30]*)\30') do lines[#lines + 1] = line end
for i = 10, #ARGV do lines[#lines + 1] = ARGV[i] end
local first = #lines + 1
while first > 1 and #lines - first + 1 < most_lines and bytes + #lines[first - 1] <= most_bytes do
  first = first - 1
  bytes = bytes + #lines[first] + 1
end
local kept = {unpack(lines, first, #lines)}
kept[#kept + 1] = ''
redis.call('HSET', notes, name, (progress ~= '' and progress or its_progress) .. '\30' .. table.concat(kept, '\30'))
return {'noted'}
