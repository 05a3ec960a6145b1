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
  local name, fields = name_of[lane], {}
  local function add_ranked(from, to)
    if ranked_of[lane] == 0 then return end
    for _, place in ipairs(redis.call('ZRANGEBYSCORE', ranked_prefix .. name, from, to, 'LIMIT', 0, wanted)) do
      fields[#fields + 1] = name .. ' ' .. place
    end
  end
  add_ranked('-inf', '(0')
  for place = head_of[lane], math.min(tail_of[lane], head_of[lane] + wanted) - 1 do fields[#fields + 1] = place_field(name, place) end
  add_ranked('(0', '+inf')
  return redis.call('HMGET', items_at, unpack(fields, 1, math.min(#fields, wanted)))
end

local reply, at = {'next'}, {}
for _, lane in ipairs((plan(n, 0))) do
  at[lane] = at[lane] or {items = waiting_of(lane, planned[lane]), next = 1}
  reply[#reply + 1] = at[lane].items[at[lane].next]
  at[lane].next = at[lane].next + 1
end
return reply
