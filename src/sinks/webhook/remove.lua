#!lua flags=allow-oom
-- Take a webhook away in bounded steps: first what makes it one, so that nothing enters. With the last one of its shard the shard goes.
--
-- ARGV[9] name             of the subscription
-- ARGV[10] its_revision     of the removal: one that was born after it belongs to a later subscription and stays
-- ARGV[11] attempts_prefix  .. subscription: list
-- ARGV[12] most             how many batches per call
--
-- Replies {'more'} or {'removed'}

local name, its_revision, attempts_prefix, most = ARGV[9], tonumber(ARGV[10]), ARGV[11], tonumber(ARGV[12])
local key = hook_prefix .. name
local lived = tonumber(redis.call('HGET', key, 'born') or '')
if not revision or not lived or lived > its_revision then return {'removed'} end

-- What its parts are is known by the fields of its record; that goes last, but for what lets events in.
redis.call('HDEL', key, 'revision')
redis.call('HDEL', tallies, name)
local lane, discarded = lane_of(name), 0

local function forget_open()
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local sequence = match(field, '^open:(.*)$')
    if sequence then
      redis.call('DEL', open_prefix .. name .. ':' .. sequence)
      redis.call('ZREM', deadlines, name .. ' ' .. sequence)
      redis.call('HDEL', key, field)
    end
  end
end

-- What others hold of it is theirs no more.
local function forget_held()
  local fields = {}
  for _, token in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
    local lease = read_lease(token)
    for i = 1, lease and lease.size or 0 do
      if lease.names[i] == name then
        fields[#fields + 1] = lease.fields[i]
        release(lease, i)
      end
    end
    if lease and lease.left < lease.size then write_lease(lease) end
  end
  remove_items(fields)
  count('held', -#fields)
  held_of[lane], discarded = held_of[lane] - #fields, discarded + #fields
end

local function forget_later()
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local id = match(field, '^later:') and redis.call('HGET', key, field)
    local item = id and redis.call('HGET', later_items, id)
    if item and lane_name_of(item) == name then
      redis.call('HDEL', later_items, id)
      redis.call('ZREM', later, id)
      later_of[lane], discarded = later_of[lane] - 1, discarded + 1
    end
  end
  redis.call('ZREM', later, '@' .. name)
end

local function forget_waiting()
  local fields, sizes = {}, 0
  while head_of[lane] < tail_of[lane] and #fields < most do
    fields[#fields + 1] = place_field(name, head_of[lane])
    head_of[lane] = head_of[lane] + 1
  end
  if ranked_of[lane] > 0 and #fields < most then
    local popped = redis.call('ZPOPMIN', ranked_prefix .. name, most - #fields)
    for i = 1, #popped, 2 do fields[#fields + 1] = name .. ' ' .. popped[i] end
    ranked_of[lane] = ranked_of[lane] - #popped / 2
  end
  for _, field in ipairs(fields) do sizes = sizes + redis.call('HSTRLEN', items_at, field) end
  remove_items(fields)
  waits(lane, -#fields, -sizes)
  discarded = discarded + #fields
  return #fields
end

local function forget_behind(sequence)
  local field, fields, sizes = object_field(lane, sequence), {}, 0
  load_objects({field})
  if not first_behind[field] then return 0 end
  while first_behind[field] < next_behind[field] and #fields < most do
    fields[#fields + 1] = field .. ' ' .. struct.pack('>I6', first_behind[field])
    sizes = sizes + redis.call('HSTRLEN', behind, fields[#fields])
    first_behind[field] = first_behind[field] + 1
  end
  in_pieces('HDEL', behind, fields)
  count('behind', -#fields)
  count('bytes', -sizes)
  behind_of[lane], bytes_of[lane], discarded = (behind_of[lane] or 0) - #fields, bytes_of[lane] - sizes, discarded + #fields
  if first_behind[field] == next_behind[field] then first_behind[field] = false end
  return #fields
end

local function forget_dead()
  local found, seen = 0, 0
  while dead_of[lane] > 0 and found < most do
    local ids = redis.call('ZRANGE', dead_order, seen, seen + 19)
    if #ids == 0 then break end
    for _, id in ipairs(ids) do
      if match(redis.call('HGET', dead, id), '^%d+\30[^\30]*\30%S+ %d+ (%S+) ') == name then
        take_letter(id)
        found = found + 1
      else
        seen = seen + 1
      end
    end
  end
  discarded = discarded + found
  return found
end

forget_open()
forget_held()
forget_later()
local steps, sequences = forget_waiting() + forget_dead(), tonumber(redis.call('HGET', key, 'sequences') or 1)
for sequence = 0, sequences - 1 do steps = steps + forget_behind(tostring(sequence)) end
count('discarded', discarded)
local is_more = steps >= most
-- Between two steps nothing of it is given: what fails then would wait for a time, and nobody would know of it.
not_before[lane] = is_more and forever or 0
if not is_more then left_of[lane] = 0 end
save()
if is_more then return {'more'} end

redis.call('UNLINK', key, attempts_prefix .. name)
redis.call('SREM', announced, name)
redis.call('HDEL', definitions, name)
if redis.call('HINCRBY', store, 'hooks', -1) > 0 then return {'removed'} end
redis.call('UNLINK', store, turns, lanes, weights, later, later_items, leases, items_at, dead, dead_order, idle, objects, behind, parked,
  deadlines, announced, definitions, tallies)
return {'removed'}
