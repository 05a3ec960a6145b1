#!lua flags=allow-oom,no-writes
-- The items that would be claimed next, in order, without a change.
--
-- ARGV[6] n  how many, of which 1,000 are shown at most
--
-- Replies {'next', item…}
--         {'gone'}  there is no such store

local n = math.min(1000, tonumber(ARGV[6]))
if not revision then return {'gone'} end

-- The waiting items of a lane, as far as they are asked for.
local function waiting_of(lane, wanted)
  local items = ranked_of[lane] > 0 and redis.call('ZRANGEBYSCORE', ranked_prefix .. name_of[lane], '-inf', '(0', 'LIMIT', 0, wanted) or {}
  local places = {}
  for place = head_of[lane], math.min(tail_of[lane], head_of[lane] + wanted) - 1 do places[#places + 1] = place_field(name_of[lane], place) end
  for _, item in ipairs(#places > 0 and redis.call('HMGET', waiting, unpack(places)) or {}) do items[#items + 1] = item end
  if ranked_of[lane] == 0 then return items end
  for _, item in ipairs(redis.call('ZRANGEBYSCORE', ranked_prefix .. name_of[lane], '(0', '+inf', 'LIMIT', 0, wanted)) do
    items[#items + 1] = item
  end
  return items
end

local reply, at = {'next'}, {}
for _, lane in ipairs(plan(n)) do
  at[lane] = at[lane] or {items = waiting_of(lane, planned[lane]), next = 1}
  reply[#reply + 1] = at[lane].items[at[lane].next]
  at[lane].next = at[lane].next + 1
end
return reply
