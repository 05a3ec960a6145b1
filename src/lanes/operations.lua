#!lua flags=allow-oom
-- Look at operations: at some by name, or at those of one object, the newest first.
--
-- ARGV[6] act      'get' or 'of'
-- ARGV[7] details  1: also input, output or error, and what handlers have said
-- ARGV[8…] rest    'get': names; 'of': hash of the object, ms and name of the one before the page or '' and '', how many
--
-- Replies {'seen', more, row…}  as track.row has them (operations.part.lua), without those that are not there; of an object also those that are
--                              not there any more are taken out of its index. more: 1 when there may be more of the object
--         {'gone'}             there is no such store

local act, details = ARGV[6], ARGV[7] == '1'
-- Of a page.
local most_bytes = 1048576

if not revision then return {'gone'} end
local reply = {'seen', 0}
if not track then return reply end

if act == 'get' then
  for i = 8, #ARGV do reply[#reply + 1] = track.row(ARGV[i], details) end
  return reply
end

local index, from_ms, from_name, most = sub(store, 1, -6) .. 'opsOf:' .. ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11])
local highest, offset, gone, bytes = from_ms ~= '' and from_ms or '+inf', 0, {}, 0

-- In the order of the index: by bytes, which Lua's own comparison of texts is not in every language of the server.
local function is_below(a, b)
  for i = 1, math.min(#a, #b) do
    local of_a, of_b = byte(a, i), byte(b, i)
    if of_a ~= of_b then return of_a < of_b end
  end
  return #a < #b
end

local function has_room() return #reply - 2 < most and bytes < most_bytes end

while has_room() do
  local page = redis.call('ZRANGE', index, highest, '-inf', 'BYSCORE', 'REV', 'LIMIT', offset, most, 'WITHSCORES')
  if #page == 0 then break end
  for i = 1, #page, 2 do
    if not has_room() then break end
    -- Of those of one ms, the ones behind the name.
    if page[i + 1] ~= from_ms or is_below(page[i], from_name) then
      local row = track.row(page[i], details)
      if row then
        reply[#reply + 1] = row
        for word = 1, #row do bytes = bytes + #row[word] end
      else
        gone[#gone + 1] = page[i]
      end
    end
  end
  offset = offset + most
end
for i = 1, #gone do redis.call('ZREM', index, gone[i]) end
if not has_room() then reply[2] = 1 end
return reply
