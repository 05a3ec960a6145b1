#!lua flags=allow-oom
-- The owner of partitions says how far it is, and lets go of those that it was asked for.
--
-- KEYS[1] owners   hash  partition -> "<owner or -> <epoch> <release by µs or 0> <wanted by or ->"
-- KEYS[2] cursors  hash  partition -> seq up to which everything is done
-- KEYS[3] rates    hash  partition -> "<events a second> <at, ms>"
-- ARGV[1] wake     channel on which members hear that their partitions have changed
-- ARGV[2…] said    per partition: its number, the epoch under which it is held, the cursor, 'keep' or 'release', its rate
--                  or ''
--
-- Replies {'committed', word…}, a word for each partition: 'done', or 'stale' when the epoch is not the stored one; then
--           nothing of it was written. A cursor never moves backwards. 'release' of what nobody else wants keeps it.

local owners, cursors, rates = KEYS[1], KEYS[2], KEYS[3]
local wake = ARGV[1]
local reply, told = {'committed'}, {}

for i = 2, #ARGV, 5 do
  local partition, epoch, cursor, act, rate = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local held = redis.call('HGET', owners, partition) or '- 0 0 -'
  local owner, stored, wanted = string.match(held, '^(%S+) (%d+) %d+ (%S+)$')
  if owner == '-' or stored ~= epoch then
    reply[#reply + 1] = 'stale'
  else
    reply[#reply + 1] = 'done'
    local before = redis.call('HGET', cursors, partition)
    if tonumber(cursor) > tonumber(before or -1) then redis.call('HSET', cursors, partition, cursor) end
    if rate ~= '' then redis.call('HSET', rates, partition, rate) end
    if act == 'release' and wanted ~= owner then
      redis.call('HSET', owners, partition, '- ' .. stored .. ' 0 ' .. wanted)
      if wanted ~= '-' then told[#told + 1] = wanted end
    end
  end
end

if #told > 0 then redis.call('PUBLISH', wake, table.concat(told, ' ')) end
return reply
