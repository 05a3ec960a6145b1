#!lua
-- Put items straight into the queue, in the order given.
--
-- KEYS[15] remembered  hash  'call:' .. process -> "<n> <answer>", its last flush; 'once:' .. hash of (lane, idempotency key) ->
--                            "<fingerprint> <id>"
-- KEYS[16] forget      zset  field of remembered -> ms at which it is forgotten
-- ARGV[6] process      random, new with every start
-- ARGV[7] n            number of its flush, growing by one
-- ARGV[8] call_ms      for how long the answer is remembered
-- ARGV[9] once_ms      for how long an idempotency key is
-- ARGV[10] items       how many
-- ARGV[11…] rest       items, each: id, lane, key or '', delay ms, ttl ms or 0, priority, once hash or '', fingerprint, envelope; then, if the
--                      sender knows that the queue is tracked: revision of the definition that it knows, and as the act 'inputs' has it how many
--                      follow, each: id, what is shown. By an older definition than the store's nothing was looked through.
--
-- Replies {'sent', now, word…}  when, in ms; per item: its id; 'duplicate <id>', what an earlier one was answered; 'reused', the
--                               idempotency key was used for another body, or 'full <items>', so much of its tenant waits already: nothing of
--                               this item is stored then
--         {'late'}              a flush with a higher number has come already; nothing written
--         {'gone'}              there is no such store

local argv = ARGV
local remembered, forget = KEYS[15], KEYS[16]
local process, n, call_ms, once_ms = 'call:' .. argv[6], tonumber(argv[7]), tonumber(argv[8]), tonumber(argv[9])
local items = tonumber(argv[10])
local last_at = 10 + 9 * items

if not revision then return {'gone'} end

local seen = redis.call('HGET', remembered, process)
if seen then
  local last, answer = match(seen, '^(%d+) (.*)$')
  if tonumber(last) == n then return cjson.decode(answer) end
  if tonumber(last) > n then return {'late'} end
end

local written_now = format('%.0f', now)
local reply, names, fresh, ready = {'sent', written_now}, {}, {}, 0

-- Twice as many as this call can add, so that it never grows by what is over.
local over = redis.call('ZRANGEBYSCORE', forget, '-inf', now, 'LIMIT', 0, math.min(1000, 2 + math.ceil(last_at / 4)))
if #over > 0 then
  redis.call('HDEL', remembered, unpack(over))
  redis.call('ZREM', forget, unpack(over))
end

local function remember(field, value, ms)
  redis.call('HSET', remembered, field, value)
  redis.call('ZADD', forget, now + ms, field)
end

-- What an idempotency key was used for before, in this call or an earlier one.
local function answered(once, fingerprint)
  if once == '' then return nil end
  local field = 'once:' .. once
  local stored = fresh[once] or redis.call('HGET', remembered, field)
  if not stored then return nil end
  -- Over, and not swept yet.
  if not fresh[once] and tonumber(redis.call('ZSCORE', forget, field)) <= now then return nil end
  local its_fingerprint, id = match(stored, '^(%S+) (%S+)$')
  return its_fingerprint == fingerprint and 'duplicate ' .. id or 'reused'
end

local function enter(id, lane, key, delay, ttl, priority, envelope)
  local expires = ttl > 0 and format('%.0f', now + ttl) or '0'
  if is_ordered and key ~= '' then priority = priority .. ' ' .. key end
  local item = table.concat({id, expires, name_of[lane], '0', '0', written_now, priority, '\n' .. envelope}, ' ')
  count('in', 1)
  if track then track.enters(item) end
  if delay > 0 then
    redis.call('HSET', later_items, id, item)
    redis.call('ZADD', later, now + delay, id)
    later_of[lane] = later_of[lane] + 1
    -- Nothing was due earlier: someone has to know of it.
    if redis.call('ZRANK', later, id) == 0 then ready = ready + 1 end
  elseif line_up_or_behind(lane, item) then
    ready = ready + 1
  end
end

local its_definition = tonumber(argv[last_at + 1])
if track and its_definition and its_definition >= tonumber(asked_for.defined) then
  local said = {}
  for at = last_at + 3, #argv, 2 do said[argv[at]] = argv[at + 1] end
  track.inputs(said)
end
for at = 11, last_at, 9 do names[#names + 1] = argv[at + 1] end
load_all(names)
for at = 11, last_at, 9 do
  local id, lane, once, fingerprint = argv[at], loaded[argv[at + 1]], argv[at + 6], argv[at + 7]
  local word = answered(once, fingerprint) or limits and is_full(lane) and format('full %.0f', most_backlog)
  if not word then
    enter(id, lane, argv[at + 2], tonumber(argv[at + 3]), tonumber(argv[at + 4]), argv[at + 5], argv[at + 8])
    if once ~= '' then fresh[once] = fingerprint .. ' ' .. id end
  end
  reply[#reply + 1] = word or id
end
for once, stored in pairs(fresh) do remember('once:' .. once, stored, once_ms) end
remember(process, format('%.0f ', n) .. cjson.encode(reply), call_ms)
save()
wake_idle(ready)
return reply
