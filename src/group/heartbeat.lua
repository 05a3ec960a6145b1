#!lua flags=allow-oom
-- One member of a group says that it is there, or that it goes; whoever says so also expires the silent, divides the
-- partitions and hands over those that are due. Redis is the coordinator: no member has a special part.
--
-- KEYS[1] group    hash  partitions, beat (µs of the last heartbeat of anyone), calm (µs before which nobody expires),
--                        divide (µs at which the partitions are divided anew; absent: they are), revision (grows when
--                        someone else has changed what owners keep), joined, left, expired and replaced (starts, ever)
-- KEYS[2] members  hash  name -> "<start> <seen µs> <joined µs> <about>"
-- KEYS[3] owners   hash  partition -> "<owner or -> <epoch> <release by µs or 0> <wanted by or ->"
-- KEYS[4] cursors  hash  partition -> seq up to which everything is done
-- ARGV[1] now         µs; '' means the server's clock (tests pass a number)
-- ARGV[2] act         'join', 'beat' or 'leave'
-- ARGV[3] name        of the member
-- ARGV[4] start       random, new with every start of the process
-- ARGV[5] partitions  how many there are
-- ARGV[6] heartbeat   µs between two heartbeats of a member
-- ARGV[7] expiry      µs of silence after which a member is gone
-- ARGV[8] grace       µs that an owner has to let go of a partition
-- ARGV[9] delay       µs from a join to the new division, so that members that start together are divided once
-- ARGV[10] wake       channel on which members hear that their partitions have changed
-- ARGV[11] about      what a member says of itself, JSON
--
-- Replies {'member', members, ms until something is due, revision, partition…}: all that this member owns, each
--           {partition, epoch, cursor, ms left to let it go or -1}
--         {'replaced'}  another start has joined under this name: this one is stale
--         {'left'}
--
-- An owner keeps its partition until it lets go or its time is over; then the one that wants it gets it under a higher
-- epoch. Epochs fence: a commit under any other than the stored one changes nothing.

local group, members, owners, cursors = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local act, name, start, partitions = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local heartbeat, expiry, grace, delay = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local wake, about = ARGV[10], ARGV[11]
local format, match = string.format, string.match

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local known = redis.call('HMGET', group, 'beat', 'calm', 'divide', 'revision')
-- A server's clock may step back, by a failover or by hand: no time may lie further ahead than it was set to.
local beat = math.min(now, tonumber(known[1] or 0))
local calm = math.min(now + math.max(expiry, 2000000), tonumber(known[2] or 0))
local divide = known[3] and math.min(now + delay, tonumber(known[3]))

-- Everyone who is there, by name.
local there, count = {}, 0
local flat = redis.call('HGETALL', members)
for i = 1, #flat, 2 do
  local its_start, seen, rest = match(flat[i + 1], '^(%S+) (%d+) (.*)$')
  if tonumber(seen) > now then
    seen = format('%.0f', now)
    redis.call('HSET', members, flat[i], its_start .. ' ' .. seen .. ' ' .. rest)
  end
  there[flat[i]] = {start = its_start, seen = tonumber(seen), joined = tonumber(match(rest, '^%d+'))}
  count = count + 1
end
local own = there[name]
if own and own.start ~= start and act == 'leave' then return {'left'} end
if own and own.start ~= start and act == 'beat' then return {'replaced'} end

-- Every partition: who has it, under which epoch, until when, and who is to have it.
local held, changed, told = {}, {}, {}
for partition = 0, partitions - 1 do held[partition] = {owner = '-', epoch = 0, release = 0, wanted = '-'} end
flat = redis.call('HGETALL', owners)
for i = 1, #flat, 2 do
  local owner, epoch, release, wanted = match(flat[i + 1], '^(%S+) (%d+) (%d+) (%S+)$')
  held[tonumber(flat[i])] = {owner = owner, epoch = tonumber(epoch), release = tonumber(release), wanted = wanted}
  if tonumber(release) > now + grace then
    held[tonumber(flat[i])].release, changed[tonumber(flat[i])] = now + grace, true
  end
end

local function set(partition, owner, release, wanted)
  local one = held[partition]
  if one.owner == owner and one.release == release and one.wanted == wanted then return end
  one.owner, one.release, one.wanted = owner, release, wanted
  changed[partition] = true
end

local function raise_epoch(partition)
  held[partition].epoch = math.max(held[partition].epoch + 1, now)
  told[held[partition].owner] = true
  changed[partition] = true
end

local function remove(gone, how)
  there[gone], count, divide = nil, count - 1, now
  redis.call('HDEL', members, gone)
  redis.call('HINCRBY', group, how, 1)
  for partition = 0, partitions - 1 do
    local one = held[partition]
    local owner = one.owner ~= gone and one.owner or '-'
    set(partition, owner, owner ~= '-' and one.release or 0, one.wanted ~= gone and one.wanted or '-')
  end
end

-- After a time in which nobody at all was heard either Redis was away or everyone was: nobody expires for two heartbeats.
-- A member that comes back from such a time shows that it was Redis. Then that time counts for nobody: everyone has the
-- whole expiry to come back, two seconds at least, because connections do not come back all at once.
if beat > 0 and now - beat > expiry / 2 then calm = now + 2 * heartbeat end
if now < calm and own and own.start == start and own.seen < now - expiry / 2 then
  calm = now + math.max(expiry, 2000000)
end
if now >= calm then
  for other, member in pairs(there) do
    if member.seen < now - expiry then remove(other, 'expired') end
  end
end
own = there[name]

if act == 'leave' then
  if own then remove(name, 'left') end
else
  if not own then
    own, count = {start = start, joined = now}, count + 1
    there[name] = own
    redis.call('HINCRBY', group, 'joined', 1)
    -- Alone it need not wait; among others it waits for those that start with it.
    divide = count == 1 and now or divide or now + delay
  elseif own.start ~= start then
    own.start = start
    redis.call('HINCRBY', group, 'joined', 1)
    redis.call('HINCRBY', group, 'replaced', 1)
    for partition = 0, partitions - 1 do
      if held[partition].owner == name then raise_epoch(partition) end
    end
  end
  redis.call('HSET', members, name, format('%s %.0f %.0f ', start, now, own.joined) .. about)
end

-- Balanced (the counts differ by one at most), and as few partitions move as that allows: those with the most keep one
-- more, everyone keeps what it has up to its share, and an owner that had not let go yet comes first.
local function divide_now()
  local names, has, share, keeps = {}, {}, {}, {}
  for other in pairs(there) do names[#names + 1], has[other], keeps[other] = other, 0, 0 end
  for partition = 0, partitions - 1 do
    local wanted = held[partition].wanted
    if has[wanted] then has[wanted] = has[wanted] + 1 end
  end
  table.sort(names, function(a, b)
    if has[a] ~= has[b] then return has[a] > has[b] end
    if there[a].joined ~= there[b].joined then return there[a].joined < there[b].joined end
    return a < b
  end)
  local least, more = math.floor(partitions / count), partitions % count
  for i, other in ipairs(names) do share[other] = least + (i <= more and 1 or 0) end

  local goes_to = {}
  local function give(partition, to)
    if goes_to[partition] or not share[to] or keeps[to] >= share[to] then return end
    goes_to[partition], keeps[to] = to, keeps[to] + 1
  end
  for partition = 0, partitions - 1 do
    if held[partition].wanted == held[partition].owner then give(partition, held[partition].owner) end
  end
  for partition = 0, partitions - 1 do give(partition, held[partition].wanted) end
  for partition = 0, partitions - 1 do give(partition, held[partition].owner) end
  local next_name = 1
  for partition = 0, partitions - 1 do
    while not goes_to[partition] do
      give(partition, names[next_name])
      if not goes_to[partition] then next_name = next_name + 1 end
    end
    local one = held[partition]
    local stays = goes_to[partition] == one.owner or one.owner == '-'
    if not stays then told[one.owner] = true end
    set(partition, one.owner, stays and 0 or one.release > 0 and one.release or now + grace, goes_to[partition])
  end
  divide = nil
end
if divide and divide <= now and count > 0 then divide_now() end

-- What nobody holds any more, or was held for too long, goes to who is to have it. Whoever is told when something is due,
-- also the moment at which a silent member expires, comes back just then and not up to a heartbeat later.
local due = divide or math.huge
for other, member in pairs(there) do
  if other ~= name then due = math.min(due, math.max(calm, member.seen + expiry + 1)) end
end
for partition = 0, partitions - 1 do
  local one = held[partition]
  if one.wanted ~= '-' and one.wanted ~= one.owner then
    if one.owner == '-' or one.release <= now then
      if one.owner ~= '-' then told[one.owner] = true end
      set(partition, one.wanted, 0, one.wanted)
      raise_epoch(partition)
    else
      due = math.min(due, one.release)
    end
  end
end

for partition in pairs(changed) do
  local one = held[partition]
  redis.call('HSET', owners, partition, format('%s %.0f %.0f %s', one.owner, one.epoch, one.release, one.wanted))
end
redis.call('HSET', group, 'partitions', partitions, 'beat', format('%.0f', now), 'calm', format('%.0f', calm))
if divide then redis.call('HSET', group, 'divide', format('%.0f', divide)) else redis.call('HDEL', group, 'divide') end
local names = {}
for other in pairs(told) do names[#names + 1] = other end
if #names > 0 then redis.call('PUBLISH', wake, table.concat(names, ' ')) end
if act == 'leave' then return {'left'} end

local reply = {'member', count, due == math.huge and -1 or math.ceil(math.max(0, due - now) / 1000), tonumber(known[4] or 0)}
for partition = 0, partitions - 1 do
  local one = held[partition]
  if one.owner == name then
    local left = one.release == 0 and -1 or math.max(0, math.ceil((one.release - now) / 1000))
    local cursor = redis.call('HGET', cursors, partition) or '0'
    reply[#reply + 1] = {partition, format('%.0f', one.epoch), cursor, left}
  end
end
return reply
