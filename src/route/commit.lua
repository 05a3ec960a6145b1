#!lua flags=allow-oom
-- The owner of partitions says how far main is, and where those are that do not ride with it.
--
-- KEYS[1] owners         hash  partition -> "<owner or -> <epoch> <release by µs or 0> <wanted by or ->"
-- KEYS[2] cursors        hash  partition -> seq of the main cursor
-- KEYS[3] own            hash  "<partition> <name>" -> "<seq> <revision>"
-- KEYS[4] subscriptions  hash  name -> "<revision> <born> <definition>"
-- KEYS[5] group          hash  revision: the highest that was given out
-- ARGV[1…] said          per partition: its number, the epoch under which it is held, main, how many places follow, and
--                        each of them: name, the revision it was read for, 'own' or 'join', seq
--
-- Replies {'committed', revision, {word, word of each place…}…}, a list for each partition: 'done', or 'stale' when the epoch is
--           not the stored one; then nothing of it was written. Of a place: 'done', 'outdated' when the subscription has
--           another revision, 'gone' when there is none, 'early' when main was further already than who joins; then it
--           stays as it is
--
-- One step: whoever falls behind has a place of its own by the time main moves on, and whoever joins is not below main.

local owners, cursors, own, subscriptions, group = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local function place(partition, main, name, revision, act, seq)
  local field = partition .. ' ' .. name
  local definition = redis.call('HGET', subscriptions, name)
  if not definition then return 'gone' end
  if string.match(definition, '^%d+') ~= revision then return 'outdated' end
  local before = redis.call('HGET', own, field)
  if act == 'join' then
    if tonumber(seq) < main then return 'early' end
    redis.call('HDEL', own, field)
  elseif not before or tonumber(string.match(before, '^%d+')) < tonumber(seq) then
    redis.call('HSET', own, field, seq .. ' ' .. revision)
  end
  return 'done'
end

local function move(partition, main)
  local before = tonumber(redis.call('HGET', cursors, partition) or -1)
  if tonumber(main) <= before then return before end
  redis.call('HSET', cursors, partition, main)
  return tonumber(main)
end

local reply = {'committed', redis.call('HGET', group, 'revision') or '0'}
local i = 1
while i <= #ARGV do
  local partition, epoch, main, places = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local owner, stored = string.match(redis.call('HGET', owners, partition) or '- 0', '^(%S+) (%d+)')
  local words = {'stale'}
  if owner ~= '-' and stored == epoch then
    words[1] = 'done'
    local moved = move(partition, main)
    for j = i + 4, i + 4 * places, 4 do
      words[#words + 1] = place(partition, moved, ARGV[j], ARGV[j + 1], ARGV[j + 2], ARGV[j + 3])
    end
  end
  reply[#reply + 1] = words
  i = i + 4 + 4 * places
end
return reply
