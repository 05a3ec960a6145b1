#!lua flags=allow-oom
-- Look at operations: at some by name, or at those of one object, the newest first.
--
-- ARGV[6] act      'get' or 'of'
-- ARGV[7] details  1: also input, output or error, and what handlers have said
-- ARGV[8…] rest    'get': names; 'of': object, ms and name of the one before the page or '' and '', how many
--
-- Replies {'seen', more, row…}  as track.row has them (operations.part.lua), without those that are not there; of an object also those that are
--                              not there any more are taken out of its index. more: 1 when there may be more of the object, also when
--                              there is no row: of those that are not there a call meets some two thousand at most
--         {'gone'}             there is no such store

local act, details = ARGV[6], ARGV[7] == '1'
-- Of a page; and when it has met so many that are not there any more, it ends.
local most_bytes, most_gone = 1048576, 1000

if not revision then return {'gone'} end
local reply = {'seen', 0}
if not track then return reply end

if act == 'get' then
  local names = {}
  for i = 8, #ARGV do names[i - 7] = ARGV[i] end
  track.load(names)
  for i = 1, #names do reply[#reply + 1] = track.row(names[i], details) end
  return reply
end

local object, before_ms, before_name, most = ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11])
local index = track.index
local in_index = index.object(object)
-- No line begins with such a sign.
local last = before_ms ~= '' and index.line(before_ms, before_name) or '~'
local gone, objects_of_gone, bytes, is_all = {}, {}, 0, false

local function has_room() return #reply - 2 < most and bytes < most_bytes end

local function add(line, name)
  local row = track.row(name, details)
  if not row then
    gone[#gone + 1], objects_of_gone[#gone + 1] = line, in_index
    return
  end
  reply[#reply + 1] = row
  for word = 1, #row do bytes = bytes + #row[word] end
end

while not is_all and has_room() and #gone < most_gone do
  local page = index.before(in_index, last, math.min(1000, most + #gone))
  local names = {}
  for i = 1, #page do names[i] = match(page[i], ' (.*)$') end
  track.load(names)
  for i = 1, #page do
    if not has_room() then break end
    add(page[i], names[i])
    last = page[i]
  end
  is_all = #page == 0
end
index.remove(objects_of_gone, gone)
if not is_all and #index.before(in_index, last, 1) > 0 then reply[2] = 1 end
return reply
