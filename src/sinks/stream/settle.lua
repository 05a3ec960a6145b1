#!lua flags=allow-oom
-- The owner of a partition puts down what became of events that are not simply done: buried, set aside, blocking.
--
-- KEYS[1] owners      hash  partition -> "<owner or -> <epoch> <release by µs or 0> <wanted by or ->"
-- KEYS[2] cursors     hash  partition -> seq up to which everything is done
-- KEYS[3] group       hash  shelved (events on all shelves), deadDropped (dead letters given up for newer ones)
-- KEYS[4] blocked     hash  partition -> what blocks it, JSON
-- KEYS[5] dead        hash  event id -> dead letter, JSON
-- KEYS[6] dead_order  zset  event id by the time it became a dead letter
-- KEYS[7] shelves     hash  object -> "<partition> <parked or released> <last seq on it> <reason, JSON>"
-- ARGV[1] partition
-- ARGV[2] epoch        under which it is held
-- ARGV[3] cursor       everything up to here is done
-- ARGV[4] now          µs; '' means the server's clock (tests pass a number)
-- ARGV[5] shelf_prefix the events set aside of an object are the list  shelf_prefix .. sha1
-- ARGV[6] max_dead     dead letters to keep; the oldest give way
-- ARGV[7] max_shelves  objects that may be set aside at once
-- ARGV[8] max_shelved  events that may lie on shelves at once
-- ARGV[9…]             what became of events, one text each, JSON:
--                      ["dead", event id, letter]           it is buried
--                      ["park", object, reason]             its object is set aside until someone resumes it
--                      ["shelve", object, seq, event]       it waits behind the others of its object
--                      ["unshelve", object, event]          it is off the shelf: done, or buried
--                      ["close", object]                    nothing lies on its shelf any more
--                      ["block", reason]                    the partition stops until someone resumes it
--
-- Replies {'settled'}
--         {'stale'}   the epoch is not the stored one; nothing was written
--         {'full'}    there is no room for another object or event on the shelves; nothing was written
--
-- Repeating it is harmless: a letter has its event's id, and a shelf takes only what is newer than its last.

local owners, cursors, group, blocked, dead, dead_order, shelves =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local partition, epoch, cursor, shelf_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local max_dead, max_shelves, max_shelved = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local owner, stored = string.match(redis.call('HGET', owners, partition) or '', '^(%S+) (%d+) ')
if owner == '-' or stored ~= epoch then return {'stale'} end

local now = ARGV[4]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000000 + time[2])
end

local fates, room, places = {}, 0, 0
for i = 9, #ARGV do
  local fate = cjson.decode(ARGV[i])
  fates[#fates + 1] = fate
  if fate[1] == 'shelve' then room = room + 1 end
  if fate[1] == 'unshelve' then room = room - 1 end
  if fate[1] == 'park' and redis.call('HEXISTS', shelves, fate[2]) == 0 then places = places + 1 end
end
if room > 0 and tonumber(redis.call('HGET', group, 'shelved') or 0) + room > max_shelved then return {'full'} end
if places > 0 and redis.call('HLEN', shelves) + places > max_shelves then return {'full'} end

local function shelf_of(object) return shelf_prefix .. redis.sha1hex(object) end

local function read_shelf(object)
  return string.match(redis.call('HGET', shelves, object) or '', '^(%d+) (%a+) (%d+) (.*)$')
end

local settle = {}

function settle.dead(id, letter)
  redis.call('HSET', dead, id, letter)
  redis.call('ZADD', dead_order, now, id)
end

function settle.park(object, reason)
  local _, _, last = read_shelf(object)
  redis.call('HSET', shelves, object, partition .. ' parked ' .. (last or '0') .. ' ' .. reason)
end

function settle.shelve(object, seq, event)
  -- Its last event may just have been taken off: then the shelf is made anew, and the owner finds it there.
  local _, state, last, reason = read_shelf(object)
  if state and tonumber(seq) <= tonumber(last) then return end
  redis.call('RPUSH', shelf_of(object), event)
  redis.call('HSET', shelves, object, table.concat({partition, state or 'released', seq, reason or '{}'}, ' '))
  redis.call('HINCRBY', group, 'shelved', 1)
end

function settle.close(object)
  if redis.call('EXISTS', shelf_of(object)) == 0 then redis.call('HDEL', shelves, object) end
end

function settle.unshelve(object, event)
  if redis.call('LREM', shelf_of(object), 1, event) == 1 then redis.call('HINCRBY', group, 'shelved', -1) end
  settle.close(object)
end

function settle.block(reason) redis.call('HSET', blocked, partition, reason) end

for _, fate in ipairs(fates) do settle[fate[1]](unpack(fate, 2)) end

local over = redis.call('ZCARD', dead_order) - max_dead
if over > 0 then
  for _, id in ipairs(redis.call('ZRANGE', dead_order, 0, over - 1)) do redis.call('HDEL', dead, id) end
  redis.call('ZREMRANGEBYRANK', dead_order, 0, over - 1)
  redis.call('HINCRBY', group, 'deadDropped', over)
end
if tonumber(cursor) > tonumber(redis.call('HGET', cursors, partition) or -1) then
  redis.call('HSET', cursors, partition, cursor)
end
return {'settled'}
