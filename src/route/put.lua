#!lua flags=allow-oom
-- Create a subscription, or change its definition.
--
-- KEYS[1] group          hash  revision: the highest that was given out
-- KEYS[2] subscriptions  hash  name -> "<revision> <born> <definition>"
-- KEYS[3] changes        zset  name -> revision of its last change; removed ones too
-- KEYS[4] own            hash  "<partition> <name>" -> "<seq> <revision>": where a subscription is that does not ride with main
-- KEYS[5] cursors        hash  partition -> seq of the main cursor
-- KEYS[6] replaced       hash  name -> "<until ms>:<sha1> …": definitions that were replaced a short while ago
-- KEYS[7] removing       hash  name -> "<revision> <at ms> <kind>": its store is being taken away
-- ARGV[1] now         µs; '' means the server's clock (tests pass a number)
-- ARGV[2] wake        channel on which routers hear that something has changed
-- ARGV[3] name
-- ARGV[4] definition  canonical JSON
-- ARGV[5] force       'force': also a definition that was replaced a short while ago
-- ARGV[6] guard       ms for which a replaced definition may not come back
-- ARGV[7…] starts     for each partition: the seq above which the events of a new one lie, and the partition's last
--
-- Replies {'created', revision, born, seq…}  the seqs: where it is, for each partition
--         {'changed', revision, born, seq…}
--         {'same', revision, born, seq…}     the definition is equal: nothing was written
--         {'taken', kind}                    the name is that of a subscription of another kind: nothing was written
--         {'elsewhere'}                      the definition was replaced a short while ago: nothing was written
--         {'removing', mark}                 the store of this name is still being taken away: nothing was written
--
-- A revision is never given twice, also not after a removal or a rollback: it is the server's clock, or one more than the last.
-- A changed subscription reads on by itself from where it is, so no router that knows only the old definition moves it. One whose
-- definition matches nothing is nowhere: nobody reads for it, and when that changes it begins with what comes next.

local group, subscriptions, changes, own, cursors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local replaced, removing = KEYS[6], KEYS[7]
local wake, name, definition, force, guard = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local first_start = 7
local format = string.format

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local now_ms = math.floor(now / 1000)

local mark = redis.call('HGET', removing, name)
if mark then return {'removing', mark} end

local stored = redis.call('HGET', subscriptions, name)
local revision, born, before
if stored then revision, born, before = string.match(stored, '^(%d+) (%d+) (.*)$') end

if stored then
  local kind = cjson.decode(before).kind
  if kind ~= cjson.decode(definition).kind then return {'taken', kind} end
end

local function matches_nothing(text) return cjson.decode(text).match == cjson.null end

-- Where it is in each partition: by itself, or with main, or, where it is new, at its start.
local seqs, was_nowhere = {}, stored and matches_nothing(before)
for i = first_start, #ARGV, 2 do
  local at, last = ARGV[i], ARGV[i + 1]
  if stored then
    at = redis.call('HGET', own, #seqs .. ' ' .. name) or redis.call('HGET', cursors, #seqs) or '0'
    at = string.match(at, '^%d+')
    if was_nowhere and tonumber(at) < tonumber(last) then at = last end
  end
  seqs[#seqs + 1] = at
end

local function with_seqs(reply)
  for i = 1, #seqs do reply[#reply + 1] = seqs[i] end
  return reply
end
if before == definition then return with_seqs({'same', revision, born}) end

-- A definition that comes back comes from a process that has not heard of the new one yet: a rolling deployment.
local hash, kept = redis.sha1hex(definition), {}
for till, was in string.gmatch(redis.call('HGET', replaced, name) or '', '(%d+):(%x+)') do
  if tonumber(till) > now_ms then
    if was == hash and force ~= 'force' then return {'elsewhere'} end
    if was ~= hash then kept[#kept + 1] = till .. ':' .. was end
  end
end

revision = format('%.0f', math.max(tonumber(redis.call('HGET', group, 'revision') or 0) + 1, now))
born = born or revision
if stored then
  kept[#kept + 1] = format('%.0f:%s', now_ms + guard, redis.sha1hex(before))
  while #kept > 8 do table.remove(kept, 1) end
  redis.call('HSET', replaced, name, table.concat(kept, ' '))
end
redis.call('HSET', subscriptions, name, revision .. ' ' .. born .. ' ' .. definition)
redis.call('ZADD', changes, revision, name)
local is_nowhere = matches_nothing(definition)
for i = 1, #seqs do
  local field = (i - 1) .. ' ' .. name
  if is_nowhere then redis.call('HDEL', own, field) else redis.call('HSET', own, field, seqs[i] .. ' ' .. revision) end
end
redis.call('HSET', group, 'revision', revision)
redis.call('PUBLISH', wake, '*')
return with_seqs(stored and {'changed', revision, born} or {'created', revision, born})
