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

-- What is said, with the items as they are held.
local said, stale, names, seen, at, place = {}, {}, {}, {}, 6, 0
while at <= #argv do
  local token, outcome, size = argv[at], argv[at + 1], tonumber(argv[at + 2])
  local step, ids = values[outcome], {}
  for i = 1, size do ids[i] = argv[at + 3 + (i - 1) * step] end
  local items, held = held_under(token, ids), {}
  seen[token] = seen[token] or {}
  for i = 1, size do
    place = place + 1
    -- The same id twice in one call: the second time it is not held any more.
    local item = not seen[token][ids[i]] and items[i]
    seen[token][ids[i]] = true
    if item then
      local first = at + 3 + (i - 1) * step
      local name = lane_name_of(item)
      names[#names + 1] = name
      held[#held + 1] = {id = ids[i], item = item, lane = name, ms = tonumber(argv[first + 1]), reason = argv[first + step - 1]}
    else
      stale[#stale + 1] = place
    end
  end
  said[#said + 1] = {token = token, outcome = outcome, held = held}
  at = at + 3 + size * step
end
load_all(names)

local ready = 0

local function wait_for(lane, ms)
  lane.not_before = math.max(lane.not_before, now + ms)
  redis.call('ZADD', later, lane.not_before, '@' .. lane.name)
end

local function fail(one, lane, claimed, is_final)
  local item, id, attempts = tried(one.item, claimed)
  if is_final or most_attempts > 0 and attempts >= most_attempts then
    bury(lane, id, item, one.reason)
  elseif one.ms <= 0 then
    line_up(lane, {item}, false)
    ready = ready + 1
  else
    redis.call('HSET', later_items, id, item)
    redis.call('ZADD', later, now + one.ms, id)
    lane.later = lane.later + 1
  end
end

for _, group in ipairs(said) do
  local held, outcome, key = group.held, group.outcome, held_prefix .. group.token
  if #held > 0 then
    local ids, items = {}, {}
    local claimed = match(redis.call('HGET', holders, group.token), '(%d+)$')
    for i, one in ipairs(held) do
      local lane = loaded[one.lane]
      ids[i], items[i], lane.held = one.id, one.item, lane.held - 1
      if outcome == 'ack' then lane.left = lane.left + 1 end
      if outcome == 'retry' or outcome == 'dead' then fail(one, lane, claimed, outcome == 'dead') end
      if outcome == 'throttle' then wait_for(lane, one.ms) end
    end
    if outcome == 'ack' then count('out', #held) end
    if outcome == 'back' or outcome == 'throttle' then put_back(items) end
    if outcome == 'back' then ready = ready + #held end
    count('held', -#held)
    in_pieces('HDEL', key, ids)
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
