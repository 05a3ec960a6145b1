#!lua
-- Make a store, or bring the one there is to a newer definition.
--
-- ARGV[6] its_revision  of the definition
-- ARGV[7] its_born      revision of the subscription's creation
-- ARGV[8] attempts      how often an item is tried; 0: for ever
-- ARGV[9] ordered       1: one item of a key at a time, for as long as there is this store; 0: whatever waits
-- ARGV[10] its_parks    1: after its last attempt the object of an item is set aside
-- ARGV[11] its_limits   as store.part.lua reads them; '' for none
-- ARGV[12] its_track    as store.part.lua reads it; '' for none
-- ARGV[13] partitions   how many `applied` follow
-- ARGV[14…] rest        applied: seq per partition up to which everything counts as taken, for a new store; then lane, weight, …
--
-- Replies {'made'}                there was none
--         {'raised'}              attempts and weights are those of this definition now
--         {'outdated', revision}  the store knows a newer definition, or this one; nothing written
--         {'left'}                one is left of an earlier subscription of that name, or a part of it: it has to be removed first;
--                                 nothing written

local its_revision, its_born, attempts, partitions = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[13])
local ordered, its_parks, its_limits, its_track = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local is_new = not revision
local most_repaced = 10000

local defined = tonumber(redis.call('HGET', store, 'defined') or -1)
if born and its_born > born then return {'left'} end
-- Of a removal that has begun, one of these is there until its last step.
if is_new and redis.call('EXISTS', turns, lanes, weights, later, later_items, leases, items_at, dead, dead_order, idle, objects,
  behind, parked, sub(store, 1, -6) .. 'opItems') > 0 then
  return {'left'}
end
if defined >= its_revision or born and its_born < born then return {'outdated', defined} end

local names, weighed = {}, {}
for at = 14 + partitions, #ARGV, 2 do
  names[#names + 1] = ARGV[at]
  weighed[ARGV[at]] = ARGV[at + 1]
end
-- Those that had a weight and have none now are touched too.
if is_weighted then
  for _, name in ipairs(redis.call('HKEYS', weights)) do names[#names + 1] = name end
end
-- Those that wait for a rate that is another now need not wait for the old one: by that they are due within the time of one item. Of all that is
-- due by then so many are looked at.
local its_every, its_at_once = match(its_limits, '^%S+ %S+ %S+ %S+ %S+ (%S+) (%S+)')
local is_repaced = lane_every > 0 and (tonumber(its_every or 0) ~= lane_every or tonumber(its_at_once or 0) ~= lane_at_once)
if is_repaced then
  for _, waiting in ipairs(redis.call('ZRANGEBYSCORE', later, now, now + lane_every + 1, 'LIMIT', 0, most_repaced)) do
    if sub(waiting, 1, 1) == '@' then names[#names + 1] = sub(waiting, 2) end
  end
end
-- Those that hold something may hold more now, or less.
if its_limits ~= (limits or '') then
  for _, token in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
    local lease = read_lease(token)
    for _, name in ipairs(lease and lease.names or {}) do names[#names + 1] = name end
  end
end
load_all(names)
cap_of_lane = cap_in(its_limits)
redis.call('DEL', weights)
for lane = 1, lane_count do
  local before = weight_of[lane]
  weight_of[lane] = tonumber(weighed[name_of[lane]] or 1)
  if weighed[name_of[lane]] then redis.call('HSET', weights, name_of[lane], weighed[name_of[lane]]) end
  -- The rest of a turn that was begun under another weight.
  if weight_of[lane] ~= before then credit_of[lane] = 0 end
  if is_repaced and not_before[lane] > now and not_before[lane] == math.ceil((paced_of[lane] or 0) + lane_every - lane_at_once) then
    not_before[lane] = 0
    redis.call('ZREM', later, '@' .. name_of[lane])
  end
end
redis.call('HSET', store, 'revision', format('%.0f', math.max(revision or 0, its_revision)), 'defined', ARGV[6], 'born', ARGV[7],
  'attempts', attempts, 'weighted', next(weighed) and 1 or 0, 'parks', its_parks)
if its_limits == '' then redis.call('HDEL', store, 'limits', 'paced') else redis.call('HSET', store, 'limits', its_limits) end
-- What is an operation ends as one. Items that came while it was not tracked are none.
local is_ending = its_track == '' and track and not track.is_empty()
if is_ending then its_track = 'ending ' .. track_hides end
if its_track ~= '' and (is_ending or is_mixed or not is_new and not tracking) then
  its_track = its_track .. ' mixed'
elseif its_track ~= '' and has_returned then
  its_track = its_track .. ' returned'
end
if its_track == '' then redis.call('HDEL', store, 'track') else redis.call('HSET', store, 'track', its_track) end
if is_new then
  redis.call('HSET', store, 'ordered', ordered)
  for partition = 0, partitions - 1 do redis.call('HSET', store, 'applied:' .. partition, ARGV[14 + partition]) end
end
save()
local ready = 0
for lane = 1, lane_count do if gives(lane) then ready = ready + waits_in(lane) end end
-- Others than those that hold something may be given more of now.
if its_limits ~= (limits or '') then ready = tonumber(known[counters_at + 2] or 0) end
wake_idle(math.min(ready, 1000))
return is_new and {'made'} or {'raised'}
