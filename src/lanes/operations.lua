#!lua flags=allow-oom
-- Look at operations: at some by name, or at those of one object, the newest first.
--
-- ARGV[6] act      'get' or 'of'
-- ARGV[7] details  1: also input, output or error, and what handlers have said
-- ARGV[8…] rest    'get': names; 'of': hash of the object, ms and name of the one before the page or '' and '', how many
--
-- Replies {'seen', now, row…}  as track.row has them (operations.part.lua), without those that are not there; of an object also those that are
--                              not there any more are taken out of its index
--         {'gone'}             there is no such store

local act, details = ARGV[6], ARGV[7] == '1'

if not revision then return {'gone'} end
local reply = {'seen', format('%.0f', now)}
if not track then return reply end

if act == 'get' then
  for i = 8, #ARGV do reply[#reply + 1] = track.row(ARGV[i], details) end
  return reply
end

local index, from_ms, from_name, most = sub(store, 1, -6) .. 'opsOf:' .. ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11])
local highest, offset, gone = from_ms ~= '' and from_ms or '+inf', 0, {}
while #reply - 2 < most do
  local page = redis.call('ZRANGE', index, highest, '-inf', 'BYSCORE', 'REV', 'LIMIT', offset, most, 'WITHSCORES')
  if #page == 0 then break end
  for i = 1, #page, 2 do
    -- Of those of one ms, the ones behind the name.
    local is_before = page[i + 1] == from_ms and page[i] >= from_name
    local row = not is_before and #reply - 2 < most and track.row(page[i], details)
    if row then
      reply[#reply + 1] = row
    elseif not is_before and row == nil then
      gone[#gone + 1] = page[i]
    end
  end
  offset = offset + most
end
for i = 1, #gone do redis.call('ZREM', index, gone[i]) end
return reply
