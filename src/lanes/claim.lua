#!lua flags=allow-oom
-- Give the lanes in line their turns: lease their next items, or take them for good.
--
-- What is due comes first: lapsed leases, items that waited for a time, lanes that had to wait. At most 100 pieces per call.
--
-- ARGV[6] token     of the lease, random; '' takes the items for good (pop)
-- ARGV[7] n         how many items, of which 1,000 are given at most; 0 only brings back what is due
-- ARGV[8] lease_ms  how long the lease lasts
-- ARGV[9] worker    who claims
-- ARGV[10] start    random, new with every start of the worker
-- ARGV[11] name     under which the claimer hears of work if there is less than it asks for; '' does not wait
--
-- Replies {'claimed', revision, now, more, due, item…}  more: 1 when not all that is due was brought back yet; due: ms until
--                                                    something is, -1 for nothing
--         {'paused', revision, now}  nothing is given until the queue is resumed
--         {'replaced'}               another process works under this worker's name
--         {'gone'}                   there is no such store
--
-- A claim under a token that holds something answers what it holds, for a whole lease from now: it is safe to repeat.

local token, n, lease_ms = ARGV[6], math.min(1000, tonumber(ARGV[7])), tonumber(ARGV[8])
local worker, start, name = ARGV[9], ARGV[10], ARGV[11]
local lapsed_reason = 'its lease lapsed: the worker died, or held it for too long without renewing'

if not revision then return {'gone'} end
if field_value and field_value ~= start then return {'replaced'} end

local pieces, brought_back = 100, 0
-- What is given, and how it is held; how many items have left their lanes, with how many bytes.
local given, fields, count_of_given, taken, taken_bytes = {}, {}, 0, 0, 0
local held_key = held_prefix .. token
local written_now = format('%.0f', now)

if token ~= '' and redis.call('EXISTS', held_key) == 1 then
  redis.call('ZADD', leases, now + lease_ms, token)
  return {'claimed', revision, written_now, 0, -1, unpack(oldest_first(redis.call('HVALS', held_key)))}
end

-- What a lapsed lease held is to go back in line, or goes to the dead letters.
local function release(lapsed, back)
  local key = held_prefix .. lapsed
  local items = oldest_first(redis.call('HVALS', key))
  local claimed = match(redis.call('HGET', holders, lapsed) or '- - 0', '(%d+)$')
  local ids = {}
  -- The youngest, if not all: what is left goes before them in the next call.
  for i = math.max(1, #items - pieces + 1), #items do
    local item, id, attempts = tried(items[i], claimed)
    local lane = lane_of(lane_name_of(item))
    ids[#ids + 1], held_of[lane] = id, held_of[lane] - 1
    if most_attempts > 0 and attempts >= most_attempts then
      bury(lane, id, item, lapsed_reason)
    else
      back[#back + 1] = item
    end
  end
  count('held', -#ids)
  pieces = pieces - #ids
  if #ids > 0 then redis.call('HDEL', key, unpack(ids)) end
  if #ids == #items then
    redis.call('ZREM', leases, lapsed)
    redis.call('HDEL', holders, lapsed)
  end
end

local function first_of(key) return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or math.huge) end

local function bring_back_lapsed()
  local back = {}
  for _, lapsed in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, pieces)) do
    if pieces > 0 then release(lapsed, back) end
  end
  put_back(back)
  brought_back = #back
end

local function bring_back_due()
  if pieces == 0 then return end
  local due = redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, pieces)
  local items = redis.call('HMGET', later_items, unpack(due))
  for i, id in ipairs(due) do
    if sub(id, 1, 1) == '@' then
      local lane = lane_of(sub(id, 2))
      not_before[lane] = 0
      brought_back = brought_back + waits_in(lane)
    elseif items[i] then
      local lane = lane_of(lane_name_of(items[i]))
      later_of[lane] = later_of[lane] - 1
      line_up(lane, {items[i]}, false)
      brought_back = brought_back + 1
    end
  end
  redis.call('ZREM', later, unpack(due))
  redis.call('HDEL', later_items, unpack(due))
  pieces = pieces - #due
end

-- The items with a priority above 0, or below it, as far as they are asked for, are taken out.
local function take_ranked(lane, from, to, wanted)
  if ranked_of[lane] == 0 or wanted == 0 then return {} end
  local key = ranked_prefix .. name_of[lane]
  local items = redis.call('ZRANGEBYSCORE', key, from, to, 'LIMIT', 0, wanted)
  if #items > 0 then redis.call('ZREM', key, unpack(items)) end
  ranked_of[lane] = ranked_of[lane] - #items
  return items
end

-- Takes out what waits at these places.
local function take_places(places)
  if #places == 0 then return {} end
  local items = redis.call('HMGET', waiting, unpack(places))
  redis.call('HDEL', waiting, unpack(places))
  return items
end

-- The next items of one lane, in order: those above 0, those without a priority, those below 0.
local function take_next(lane, wanted)
  local items, places = take_ranked(lane, '-inf', '(0', wanted), {}
  while #items + #places < wanted and head_of[lane] < tail_of[lane] do
    places[#places + 1] = place_field(name_of[lane], head_of[lane])
    head_of[lane] = head_of[lane] + 1
  end
  for _, item in ipairs(take_places(places)) do items[#items + 1] = item end
  for _, item in ipairs(take_ranked(lane, '(0', '+inf', wanted - #items)) do items[#items + 1] = item end
  return items
end

-- The item has left its lane.
local function leaves(lane, item)
  bytes_of[lane], taken, taken_bytes = bytes_of[lane] - #item, taken + 1, taken_bytes + #item
end

local function give(lane, id, item)
  count_of_given = count_of_given + 1
  given[count_of_given], fields[2 * count_of_given - 1], fields[2 * count_of_given] = item, id, item
  if token == '' then left_of[lane] = left_of[lane] + 1 else held_of[lane] = held_of[lane] + 1 end
end

-- What was found, in order, if none of it can have expired.
local function give_all(order, found)
  local ids = {}
  for i = 1, #order do
    local at = find(found[i], ' ', 1, true)
    -- No time begins with a 0, but for none.
    if byte(found[i], at + 1) ~= 48 then return false end
    ids[i] = sub(found[i], 1, at - 1)
  end
  for i = 1, #order do
    leaves(order[i], found[i])
    give(order[i], ids[i], found[i])
  end
  return true
end

-- As many of the lane's items as planned that have not expired, beginning with those that were found. One that has expired is gone.
local function live_items(lane, found, credit)
  local items = {at = 0}
  repeat
    for _, item in ipairs(found) do
      local id, expires = match(item, '^(%S+) (%d+) ')
      leaves(lane, item)
      if expires == '0' or tonumber(expires) > now then
        items[#items + 1] = {id, item}
      else
        pieces = pieces - 1
        left_of[lane] = left_of[lane] + 1
        count('expired', 1)
      end
    end
    found = #items < planned[lane] and pieces > 0 and take_next(lane, planned[lane] - #items) or {}
  until #found == 0
  -- Nothing but expired ones so far: its turn is still to come.
  if #items == 0 then turn_of[lane], credit_of[lane] = false, credit end
  return items
end

-- Lane by lane, because items were found that may have expired, or some have a priority.
local function give_by_lane(order, found, had_credit)
  local of_lane, live = {}, {}
  for i = 1, #order do
    of_lane[order[i]] = of_lane[order[i]] or {}
    table.insert(of_lane[order[i]], found[i])
  end
  for i = 1, #order do
    local lane = order[i]
    local items = live[lane] or live_items(lane, of_lane[lane], had_credit[lane] or 0)
    live[lane], items.at = items, items.at + 1
    local one = items[items.at]
    if one then give(lane, one[1], one[2]) end
  end
end

-- The next items as planned, one look for all lanes; nothing when some have a priority, and the next one is not the one at the head.
local function take_planned(order)
  local places = {}
  for i = 1, #order do
    if ranked_of[order[i]] > 0 then return {} end
  end
  for i = 1, #order do
    local lane = order[i]
    places[i] = place_field(name_of[lane], head_of[lane])
    head_of[lane] = head_of[lane] + 1
  end
  return take_places(places)
end

local first_lapse, first_due = first_of(leases), first_of(later)
if first_lapse <= now then
  bring_back_lapsed()
  first_lapse = first_of(leases)
end
if first_due <= now then
  bring_back_due()
  first_due = first_of(later)
end

while not paused and count_of_given < n and pieces > 0 do
  line_lanes_up()
  local order, had_credit = plan(n - count_of_given)
  if #order == 0 then break end
  local found = take_planned(order)
  if #found == 0 or not give_all(order, found) then give_by_lane(order, found, had_credit) end
end
count('waiting', -taken)
count('bytes', -taken_bytes)

if token == '' then
  count('out', #given)
elseif #given > 0 then
  in_pieces('HSET', held_key, fields)
  redis.call('ZADD', leases, now + lease_ms, token)
  redis.call('HSET', holders, token, worker .. ' ' .. start .. ' ' .. written_now)
  count('held', #given)
end
save()

-- What was brought back and is not given here is for the others.
if brought_back > #given then wake_idle(math.min(brought_back - #given, 1000)) end
if name ~= '' then
  if #given < n then redis.call('ZADD', idle, now, name) else redis.call('ZREM', idle, name) end
end
if paused then return {'paused', revision, written_now} end

local due = -1
if #given < n or n == 0 then
  local first = math.min(first_lapse, first_due, #given > 0 and token ~= '' and now + lease_ms or math.huge)
  if first < math.huge then due = math.max(0, first - now) end
end
return {'claimed', revision, written_now, pieces <= 0 and 1 or 0, due, unpack(given)}
