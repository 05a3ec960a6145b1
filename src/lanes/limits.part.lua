-- Limits: how many may be held, how many in which time, how many may wait. Whoever is limited is not in line, so that nobody asks in vain.
--
-- A rate is kept as one time, `paced`: up to when what was given has used it up. So many items may be ahead of now as there may be at once;
-- only what is given counts.

local cap_of_store, share, store_every, store_at_once, lane_every, lane_at_once = math.huge, 0, 0, 0, 0, 0
local most_backlog, overflow = math.huge, 'hold'
if limits then
  local words = {}
  for word in string.gmatch(limits, '%S+') do words[#words + 1] = word end
  share, store_every, store_at_once = tonumber(words[3]), tonumber(words[4]), tonumber(words[5])
  lane_every, lane_at_once, overflow = tonumber(words[6]), tonumber(words[7]), words[9]
  if words[2] ~= '0' then cap_of_store = tonumber(words[2]) end
  if words[8] ~= '0' then most_backlog = tonumber(words[8]) end
end

-- Until someone resumes it.
local forever = 2 ^ 52

-- Of the store. It is further ahead than by what there may be at once only if the rate was another when it was given, which counts as far as this
-- one has room for it, or if the clock was set back.
local paced_until = tonumber(known[9] or 0)
if store_every > 0 and paced_until > now + store_at_once then
  paced_until = now + store_at_once
  note('paced', format('%.3f', paced_until))
end

-- How many of a rate there may be now.
local function left_of_rate(paced, every, at_once)
  return math.floor((at_once - (math.max(paced, now) - now)) / every + 0.000001)
end

-- How many a lane may give in this call, whatever waits there and besides its share.
local function may_give(lane)
  local most = cap_of_lane - held_of[lane]
  if lane_every == 0 then return most end
  return math.min(most, left_of_rate(paced_of[lane] or 0, lane_every, lane_at_once))
end

-- A lane may be in line although its rate is used up: another definition has lowered it, or someone has resumed the lane.
local function is_spent(lane) return lane_every > 0 and left_of_rate(paced_of[lane] or 0, lane_every, lane_at_once) < 1 end

-- How many a lane may hold as long as others wait, and how many lanes may be above that, when so many are given. Those above hold more
-- than half of their share each, for it is rounded down.
local function share_limits(given)
  if share == 0 then return math.huge, 0 end
  return math.max(1, math.floor(share * (in_all('held') + given))), math.ceil(2 / share)
end

-- Nothing of the lane is given before then. One that is paused is never due.
local function wait_until(lane, ms)
  if not_before[lane] == forever then return end
  not_before[lane] = math.max(not_before[lane], math.ceil(ms))
  redis.call('ZADD', later, not_before[lane], '@' .. name_of[lane])
end

-- Until there is more of the lane's rate. What was given under another rate counts as far as this one has room for it.
local function wait_for_rate(lane)
  paced_of[lane] = math.min(paced_of[lane] or 0, now + lane_at_once)
  wait_until(lane, paced_of[lane] + lane_every - lane_at_once)
end

-- A lane gives so many more.
local function pace_lane(lane, given)
  if lane_every == 0 then return end
  paced_of[lane] = math.max(paced_of[lane] or 0, now) + given * lane_every
  if is_spent(lane) then wait_for_rate(lane) end
end

-- How many may be given now, of n; and whether it is the rate that allows no more.
local function allowed(n)
  local most = math.max(0, math.min(n, cap_of_store - in_all('held')))
  if store_every == 0 then return most, false end
  local left = math.max(0, left_of_rate(paced_until, store_every, store_at_once))
  return math.min(most, left), left < most
end

-- So many were given. Answers when there will be more of the rate.
local function pace_store(given)
  if store_every == 0 then return math.huge end
  if given > 0 then
    paced_until = math.max(paced_until, now) + given * store_every
    note('paced', format('%.3f', paced_until))
  end
  return math.ceil(paced_until + store_every - store_at_once)
end

local function is_full(lane)
  return tail_of[lane] - head_of[lane] + ranked_of[lane] + (behind_of[lane] or 0) + later_of[lane] >= most_backlog
end

local function full_reason() return format('the backlog of its tenant is full: %.0f', most_backlog) end

-- Room for one more at the end of the lane: its first item is dropped, and counted. Answers whether there was one.
local function drop_oldest(lane)
  write_texts()
  local field = head_of[lane] < tail_of[lane] and place_field(name_of[lane], head_of[lane])
  if field then
    head_of[lane] = head_of[lane] + 1
  else
    local key = ranked_prefix .. name_of[lane]
    local place = redis.call('ZRANGE', key, 0, 0)[1]
    if not place then return false end
    redis.call('ZREM', key, place)
    ranked_of[lane], field = ranked_of[lane] - 1, name_of[lane] .. ' ' .. place
  end
  local item = redis.call('HGET', items_at, field)
  redis.call('HDEL', items_at, field)
  left_of[lane] = left_of[lane] + 1
  waits(lane, -1, -#item)
  if track then
    track.unmark(match(item, '^%S+'))
    track.drops(match(item, '^%S+'), 'it gave way to newer ones of its tenant')
  end
  count('dropped', 1)
  if is_ordered then pass_on({lane}, {key_of(item, name_of[lane])}) end
  return true
end
