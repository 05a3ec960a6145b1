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
local current = redis.call('HGET', store, 'worker:' .. worker)
if current and current ~= start then return {'replaced'} end

local pieces, brought_back = 100, 0
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
    ids[#ids + 1], lane.held = id, lane.held - 1
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

local function bring_back()
  local back = {}
  for _, lapsed in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, pieces)) do
    if pieces > 0 then release(lapsed, back) end
  end
  put_back(back)
  brought_back = #back
  if pieces == 0 then return end
  local due = redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, pieces)
  if #due == 0 then return end
  local items = redis.call('HMGET', later_items, unpack(due))
  for i, id in ipairs(due) do
    if sub(id, 1, 1) == '@' then
      local lane = lane_of(sub(id, 2))
      lane.not_before = 0
      brought_back = brought_back + lane.waiting
    elseif items[i] then
      local lane = lane_of(lane_name_of(items[i]))
      lane.later = lane.later - 1
      line_up(lane, {items[i]}, false)
      brought_back = brought_back + 1
    end
  end
  redis.call('ZREM', later, unpack(due))
  redis.call('HDEL', later_items, unpack(due))
  pieces = pieces - #due
end

-- Ranked items above 0 come before the others, those below 0 after them.
local function pop(lane, wanted)
  local key, ranked_key = lane_prefix .. lane.name, ranked_prefix .. lane.name
  if lane.ranked == 0 then return redis.call('LPOP', key, wanted) or {} end
  local items = redis.call('ZRANGEBYSCORE', ranked_key, '-inf', '(0', 'LIMIT', 0, wanted)
  local plain = #items < wanted and redis.call('LPOP', key, wanted - #items) or {}
  local low = #items + #plain < wanted and redis.call('ZRANGEBYSCORE', ranked_key, '(0', '+inf', 'LIMIT', 0, wanted - #items - #plain) or {}
  local ranked = {}
  for _, item in ipairs(items) do ranked[#ranked + 1] = item end
  for _, item in ipairs(low) do ranked[#ranked + 1] = item end
  for _, item in ipairs(plain) do items[#items + 1] = item end
  for _, item in ipairs(low) do items[#items + 1] = item end
  if #ranked > 0 then redis.call('ZREM', ranked_key, unpack(ranked)) end
  lane.ranked = lane.ranked - #ranked
  return items
end

-- So many items of the lane that have not expired, with their ids; fewer when too many have. It is asked once, whatever the
-- lanes before it have let go: who is in line gets its turn.
local function take(lane, wanted)
  local items, ids = {}, {}
  repeat
    local popped, bytes = pop(lane, wanted - #items), 0
    for i = 1, #popped do
      local item = popped[i]
      local id, expires = match(item, '^(%S+) (%d+) ')
      bytes = bytes + #item
      if expires ~= '0' and tonumber(expires) <= now then
        pieces = pieces - 1
        lane.left = lane.left + 1
        count('expired', 1)
      else
        items[#items + 1], ids[#ids + 1] = item, id
      end
    end
    waits(lane, -#popped, -bytes)
  until #items == wanted or lane.waiting == 0 or pieces <= 0
  -- Nothing but expired ones so far: its turn is still to come.
  if #items == 0 then lane.turn, lane.credit = false, lane.had_credit end
  return {items = items, ids = ids, at = 0}
end

bring_back()
line_lanes_up()

local fields, given = {}, {}
while not paused and #given < n and pieces > 0 do
  local order, taken = plan(n - #given), {}
  if #order == 0 then break end
  for _, lane in ipairs(order) do
    local from = taken[lane] or take(lane, lane.planned)
    taken[lane], from.at = from, from.at + 1
    local item = from.items[from.at]
    if item then
      given[#given + 1] = item
      fields[#fields + 1], fields[#fields + 2] = from.ids[from.at], item
      if token == '' then lane.left = lane.left + 1 else lane.held = lane.held + 1 end
    end
  end
  line_lanes_up()
end

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
  local first = math.min(tonumber(redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2] or math.huge),
    tonumber(redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or math.huge))
  if first < math.huge then due = math.max(0, first - now) end
end
return {'claimed', revision, written_now, pieces <= 0 and 1 or 0, due, unpack(given)}
