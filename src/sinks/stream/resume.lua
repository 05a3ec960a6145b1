#!lua flags=allow-oom
-- Let blocked partitions and parked objects go on.
--
-- KEYS[1] group    hash  revision
-- KEYS[2] blocked  hash  partition -> what blocks it, JSON
-- KEYS[3] shelves  hash  object -> "<partition> <parked or released> <last seq on it> <reason, JSON>"
-- ARGV[1] wake     channel on which all members hear of it
-- ARGV[2] scope    'all', 'partitions' or 'objects'
-- ARGV[3…]         the partitions or objects; nothing for all
--
-- Replies {'resumed', partitions, objects}: how many were waiting and go on

local group, blocked, shelves = KEYS[1], KEYS[2], KEYS[3]
local wake, scope = ARGV[1], ARGV[2]
local partitions, objects = 0, 0

local function release(object)
  local partition, state, rest = string.match(redis.call('HGET', shelves, object) or '', '^(%d+) (%a+) (.+)$')
  if state ~= 'parked' then return end
  redis.call('HSET', shelves, object, partition .. ' released ' .. rest)
  objects = objects + 1
end

if scope == 'all' then
  partitions = redis.call('HLEN', blocked)
  redis.call('DEL', blocked)
  for _, object in ipairs(redis.call('HKEYS', shelves)) do release(object) end
end
for i = 3, #ARGV do
  if scope == 'partitions' then partitions = partitions + redis.call('HDEL', blocked, ARGV[i]) end
  if scope == 'objects' then release(ARGV[i]) end
end
if partitions + objects > 0 then
  redis.call('HINCRBY', group, 'revision', 1)
  redis.call('PUBLISH', wake, '*')
end
return {'resumed', partitions, objects}
