#!lua flags=allow-oom
-- What a webhook has, at one instant: its record, its open batches, its sealed ones wherever they are. Bodies are left out.
--
-- ARGV[9] name  of the subscription
-- ARGV[10] most  how many sealed batches
--
-- Replies {'gone'} or {'seen', now, dead letters of it, {field, value, …}, {open…}, {sealed…}}
--         fields: of its hash; secrets; and of its tallies those that are not 0
--         open:   sequence, ms at which it is due ('' for no deadline), how many events are there
--         sealed: place ('held', 'waiting', 'later' or 'behind'), headers of item and batch, bytes,
--                 of one that is held: worker, ms since when, ms until when; of one for later: ms at which it is due

local name, most = ARGV[9], tonumber(ARGV[10])
local hook = hook_of(name)
if not revision or not hook or not define(hook) then return {'gone'} end

local lane, sealed, opened = lane_of(name), {}, {}

-- A body is long: what would not be shown is not read.
local function see(place, key, field, ...)
  local item = #sealed < most and redis.call('HGET', key, field)
  local headers = item and match(item, '^([^\n]*\n[^\n]*)\n')
  if headers then sealed[#sealed + 1] = {place, headers, #item, ...} end
end

for _, token in ipairs(most > 0 and held_of[lane] > 0 and redis.call('ZRANGE', leases, 0, -1) or {}) do
  local lease = read_lease(token)
  for i = 1, lease and lease.size or 0 do
    if lease.names[i] == name then
      local until_ms = format('%.0f', redis.call('ZSCORE', leases, token))
      see('held', items_at, lease.fields[i], match(lease.holder, '^%S+'), lease.claimed, until_ms)
    end
  end
end
if ranked_of[lane] > 0 and most > 0 then
  for _, place in ipairs(redis.call('ZRANGE', ranked_prefix .. name, 0, most - 1)) do
    see('waiting', items_at, name .. ' ' .. place)
  end
end
for place = head_of[lane], math.min(tail_of[lane], head_of[lane] + most) - 1 do
  see('waiting', items_at, place_field(name, place))
end
for sequence = 0, hook.sequences - 1 do
  local due = redis.call('ZSCORE', deadlines, name .. ' ' .. sequence)
  local events = math.max(0, redis.call('LLEN', open_prefix .. name .. ':' .. sequence) - 1)
  if due or events > 0 then opened[#opened + 1] = {tostring(sequence), due and format('%.0f', due) or '', events} end
  local id = redis.call('HGET', hook.key, 'later:' .. sequence)
  local tried_at = id and redis.call('ZSCORE', later, id)
  if tried_at then see('later', later_items, id, format('%.0f', tried_at)) end
  local field = object_field(lane, tostring(sequence))
  load_objects({field})
  if first_behind[field] then
    for place = first_behind[field], math.min(next_behind[field], first_behind[field] + most) - 1 do
      see('behind', behind, field .. ' ' .. struct.pack('>I6', place))
    end
  end
end
local fields = redis.call('HGETALL', hook.key)
fields[#fields + 1], fields[#fields + 2] = 'secrets', secrets_in(redis.call('HGET', definitions, name) or '') or ''
for field in pairs(tally_places) do
  local value = tallied(hook, field)
  if value ~= 0 then fields[#fields + 1], fields[#fields + 2] = field, format('%.0f', value) end
end
return {'seen', format('%.0f', now), dead_of[lane], fields, opened, sealed}
