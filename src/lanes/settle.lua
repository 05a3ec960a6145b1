#!lua flags=allow-oom
-- Say what became of held items. Whoever does not hold an item any more changes nothing.
--
-- ARGV[6…] groups  each: token, outcome, how many, then the items' ids with what the outcome needs:
--                  'ack'                    done: id
--                  'back'                   never begun, goes to the head of its lane with one attempt less: id
--                  'retry'                  id, ms from now, reason; after its last attempt it is a dead letter
--                  'dead'                   id, reason
--                  'throttle'               as 'back', and its whole lane waits: id, ms from now
--
-- Replies {'settled', place…}  the places, counted from 1 over all ids, of those that were not held under their token: stale
--         {'gone'}             there is no such store

local argv = ARGV
local values = {ack = 1, back = 1, retry = 3, dead = 2, throttle = 2}

if not revision then return {'gone'} end

-- The items of these ids, false for one that is not held under the token.
local function held_under(token, ids)
  local items = {}
  for from = 1, #ids, 1000 do
    local some = redis.call('HMGET', held_prefix .. token, unpack(ids, from, math.min(from + 999, #ids)))
    for i = 1, #some do items[#items + 1] = some[i] end
  end
  return items
end

-- What is said, in groups: the items that are held, with their ids, their lanes, and where in argv they are said.
local said, stale, names, count_of_names, seen, at, place = {}, {}, {}, 0, {}, 6, 0
while at <= #argv do
  local token, outcome, size = argv[at], argv[at + 1], tonumber(argv[at + 2])
  local step, asked = values[outcome], {}
  for i = 1, size do asked[i] = argv[at + 3 + (i - 1) * step] end
  local found, group = held_under(token, asked), {token = token, outcome = outcome, step = step, size = 0, ids = {}, items = {}, lanes = {}, at = {}}
  local seen_here = seen[token] or {}
  seen[token] = seen_here
  for i = 1, size do
    local id, item = asked[i], found[i]
    place = place + 1
    -- The same id twice in one call: the second time it is not held any more.
    if item and not seen_here[id] then
      local n, name = group.size + 1, lane_name_of(item)
      group.size, group.ids[n], group.items[n], group.lanes[n], group.at[n] = n, id, item, name, at + 3 + (i - 1) * step
      count_of_names = count_of_names + 1
      names[count_of_names] = name
    else
      stale[#stale + 1] = place
    end
    seen_here[id] = true
  end
  said[#said + 1] = group
  at = at + 3 + size * step
end
load_all(names)

local ready = 0

local function wait_for(lane, ms)
  not_before[lane] = math.max(not_before[lane], now + ms)
  redis.call('ZADD', later, not_before[lane], '@' .. name_of[lane])
end

local function fail(lane, item, claimed, ms, reason)
  local after, id, attempts = tried(item, claimed)
  if not ms or most_attempts > 0 and attempts >= most_attempts then
    bury(lane, id, after, reason)
  elseif ms <= 0 then
    line_up(lane, {after}, false)
    ready = ready + 1
  else
    redis.call('HSET', later_items, id, after)
    redis.call('ZADD', later, now + ms, id)
    later_of[lane] = later_of[lane] + 1
  end
end

-- What becomes of one item, by the group's outcome.
local become = {
  ack = function(lane) left_of[lane] = left_of[lane] + 1 end,
  back = function() end,
  retry = function(lane, item, claimed, first) fail(lane, item, claimed, tonumber(argv[first + 1]), argv[first + 2]) end,
  dead = function(lane, item, claimed, first) fail(lane, item, claimed, nil, argv[first + 1]) end,
  throttle = function(lane, _, _, first) wait_for(lane, tonumber(argv[first + 1])) end,
}

for _, group in ipairs(said) do
  local size, outcome, key = group.size, group.outcome, held_prefix .. group.token
  if size > 0 then
    local claimed, each = match(redis.call('HGET', holders, group.token), '(%d+)$'), become[outcome]
    for i = 1, size do
      local lane = loaded[group.lanes[i]]
      held_of[lane] = held_of[lane] - 1
      each(lane, group.items[i], claimed, group.at[i])
    end
    if outcome == 'ack' then count('out', size) end
    if outcome == 'back' or outcome == 'throttle' then put_back(group.items) end
    if outcome == 'back' then ready = ready + size end
    count('held', -size)
    in_pieces('HDEL', key, group.ids)
    if redis.call('EXISTS', key) == 0 then
      redis.call('ZREM', leases, group.token)
      redis.call('HDEL', holders, group.token)
    end
  end
end
save()
wake_idle(ready)

local reply = {'settled'}
for i = 1, #stale do reply[i + 1] = stale[i] end
return reply
