-- Webhooks: events gather in open batches, which are sealed into items of their lanes. A lane is a subscription. What it is ordered by is
-- the sequence of its events: one, or several side by side. So the batches of a sequence go out one at a time and in order, and one that
-- is to be tried again keeps the others behind it (order.part.lua).
--
--   open    events are added; at most one of each sequence
--   sealed  full, or due while nothing of its sequence waits or is held; an item of its lane, and never changed again
--   leased  someone posts it
--   gone    delivered, dropped, or a dead letter
--
-- KEYS[15] deadlines    zset  subscription .. ' ' .. sequence -> ms at which its open batch is due: exactly the open batches
-- KEYS[16] announced    set   subscriptions that were disabled, of which no event tells yet
-- KEYS[17] definitions  hash  subscription -> for whoever dispatches: its secrets, "<until ms, 0 for ever> <secret>" in lines, the newest
--                             first; then its definition, JSON in one line. Too long for the hash below, which is small in memory as long
--                             as none of its values has more than 64 bytes
-- KEYS[18] tallies      hash  subscription -> what is counted of it, packed (tally_places); there is none while it is being removed
-- ARGV[6] hook_prefix   .. subscription: hash, what is known of it: revision, born, defined, maxEvents, maxWaitMs,
--                       maxBytes, keepEvents, sequences (how many); declared (SHA-1 of the secret that the definition has); applied:<partition>;
--                       open:<sequence> -> "<opened ms> <events> <bytes>"; later:<sequence> -> id of the batch that waits to be tried again;
--                       paused (ms), disabled (why), disabledAt (ms)
-- ARGV[7] open_prefix   .. subscription .. ':' .. sequence: list, "<format>\n<start>\n<end>", then "<event id> <event>" each
-- ARGV[8] seed          random: with it begin the ids of the batches that are sealed in this call
--
-- A batch is an item like any other: '{"type":"busbar.batch","tenant":<subscription>,"format","events":<how many>,"opened":<ms>,"ids":<of
-- its events, joined by commas>}\n' and the body, as it is sent.

local deadlines, announced, definitions, tallies = KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local hook_prefix, open_prefix, seed = ARGV[6], ARGV[7], ARGV[8]

-- One that is due while its sequence is busy is looked at again: whoever ends the batch before it seals it at once.
local look_again_ms = 1000
local digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

local sealed_here, newly_ready = 0, 0

-- 20 characters, of which the last three count.
local function batch_id()
  local rest, text = sealed_here, ''
  for _ = 1, 3 do
    local low = rest % 64
    text, rest = sub(digits, low + 1, low + 1) .. text, (rest - low) / 64
  end
  sealed_here = sealed_here + 1
  return sub(seed, 1, 17) .. text
end

-- What is counted of a subscription, and where it stands in its tallies: backlog (events that are here); in, delivered, dead, dropped (events,
-- ever; of a dead letter that gave way as dropped, and not as dead any more); batches, attempts, throttled, stale (ever); failures (in a row),
-- failingSince, deliveredAt (ms; 0 for never); retrying (fields later:<sequence> that it has); loggedAt (ms at which its log of attempts was
-- last given a time to live).
local tally_places = {
  backlog = 1, ['in'] = 2, delivered = 3, dead = 4, dropped = 5, batches = 6, attempts = 7, throttled = 8, stale = 9, failures = 10,
  failingSince = 11, deliveredAt = 12, retrying = 13, loggedAt = 14,
}
local tally_format = '<dddddddddddddd'

-- By name: a subscription; false when there is none.
local hooks = {}

-- Of any number: all of a call are read with one command.
local function load_hooks(names)
  local missing = {}
  for i = 1, #names do
    local name = names[i]
    if hooks[name] == nil then hooks[name], missing[#missing + 1] = false, name end
  end
  for from = 1, #missing, 1000 do
    for i, packed in ipairs(redis.call('HMGET', tallies, unpack(missing, from, math.min(from + 999, #missing)))) do
      local name = missing[from + i - 1]
      if packed then hooks[name] = {name = name, key = hook_prefix .. name, counts = {struct.unpack(tally_format, packed)}} end
    end
  end
end

local function hook_of(name)
  if hooks[name] == nil then load_hooks({name}) end
  return hooks[name] or nil
end

-- What of its definition scripts go by, and one more field of its hash; nil when that is not there.
local function define(hook, asked_of_it)
  if not hook.revision then
    local read = redis.call('HMGET', hook.key, 'revision', 'born', 'maxEvents', 'maxWaitMs', 'maxBytes', 'keepEvents', 'sequences', asked_of_it or '')
    if not read[1] then return nil end
    hook.revision, hook.born, hook.max_events, hook.max_wait = tonumber(read[1]), tonumber(read[2]), tonumber(read[3]), tonumber(read[4])
    hook.max_bytes, hook.keep_events, hook.sequences, hook.asked = tonumber(read[5]), tonumber(read[6]), tonumber(read[7]), read[8]
  end
  return hook
end

local function tallied(hook, field) return hook.counts[tally_places[field]] end

-- Written by save_hooks().
local function set_tally(hook, field, value) hook.counts[tally_places[field]], hook.is_changed = value, true end

local function tally(hook, field, by) set_tally(hook, field, tallied(hook, field) + by) end

local function save_hooks()
  local records = {}
  for name, hook in pairs(hooks) do
    if hook and hook.is_changed then
      records[#records + 1], records[#records + 2] = name, struct.pack(tally_format, unpack(hook.counts, 1, 14))
      hook.is_changed = false
    end
  end
  in_pieces('HSET', tallies, records)
end

local function secrets_in(definition) return match(definition, '^(.-)\n{') end

-- "<until ms, 0 for ever> <secret>" each, the newest first, with a new one: the one before it goes on being used for a while, and so do those
-- before that whose time is not over.
local most_secrets = 5
local function with_secret(secrets, secret, overlap_ms)
  local current = match(secrets, '^%d+ (%S+)')
  if current == secret then return secrets end
  local kept = {'0 ' .. secret, format('%.0f', now + overlap_ms) .. ' ' .. current}
  for until_ms, old in string.gmatch(secrets, '\n(%d+) (%S+)') do
    if tonumber(until_ms) > now and old ~= secret and #kept < most_secrets then kept[#kept + 1] = until_ms .. ' ' .. old end
  end
  return table.concat(kept, '\n')
end

-- Open batches that were touched, by subscription and sequence.
local open_batches = {}

local function open_key(batch) return open_prefix .. batch.hook.name .. ':' .. batch.sequence end

local function open_batch(hook, sequence)
  local member = hook.name .. ' ' .. sequence
  local batch = open_batches[member]
  if batch then return batch end
  local opened, events, bytes = match(redis.call('HGET', hook.key, 'open:' .. sequence) or '', '^(%d+) (%d+) (%d+)$')
  batch = {hook = hook, sequence = sequence, member = member, opened = 0, events = 0, bytes = 0, stored = 0, fresh = {}}
  batch.wrap = events and redis.call('LINDEX', open_key(batch), 0)
  -- One that is counted and not there is spoiled, and for fsck: it must not stop the others.
  if batch.wrap then
    batch.opened, batch.events, batch.bytes, batch.stored = tonumber(opened), tonumber(events), tonumber(bytes), tonumber(events)
  end
  open_batches[member] = batch
  return batch
end

local function is_due(batch) return batch.events > 0 and define(batch.hook) and batch.opened + batch.hook.max_wait <= now end

-- A batch of this sequence waits, is held, or is to be tried again.
local function is_busy(lane, sequence)
  local field = object_field(lane, sequence)
  load_objects({field})
  return first_behind[field] and true or false
end

local function seal(batch)
  local pieces = batch.stored > 0 and redis.call('LRANGE', open_key(batch), 1, -1) or {}
  for i = 1, #batch.fresh do pieces[#pieces + 1] = batch.fresh[i] end
  local ids, events = {}, {}
  for i = 1, #pieces do
    local space = find(pieces[i], ' ', 1, true)
    ids[i], events[i] = sub(pieces[i], 1, space - 1), sub(pieces[i], space + 1)
  end
  local body_format, body_start, body_end = match(batch.wrap, '^([^\n]*)\n([^\n]*)\n(.*)$')
  local name, lane = batch.hook.name, lane_of(batch.hook.name)
  local item = table.concat({
    batch_id(), ' 0 ', name, ' 0 0 ', format('%.0f', now), ' 0 ', batch.sequence, ' \n{"type":"busbar.batch","tenant":"', name,
    '","format":"', body_format, '","events":', #events, ',"opened":', format('%.0f', batch.opened), ',"ids":"', table.concat(ids, ','), '"}\n',
    body_start, table.concat(events, ','), body_end,
  })
  count('in', 1)
  tally(batch.hook, 'batches', 1)
  if admits(lane, item, object_field(lane, batch.sequence)) then
    line_up(lane, item, 0)
    if turn_of[lane] or gave[lane] then newly_ready = newly_ready + 1 end
  end
  batch.is_emptied = batch.is_emptied or batch.stored > 0
  batch.events, batch.bytes, batch.fresh, batch.stored = 0, 0, {}, 0
end

-- An event comes to its open batch. One that is wrapped otherwise, would be too big with it, or has more than it may by now is sealed first.
local function gather(batch, wrap, piece)
  local hook, size = batch.hook, #piece
  local is_over = batch.bytes + size > hook.max_bytes or batch.events >= hook.max_events
  if batch.events > 0 and (is_over or batch.wrap ~= wrap) then seal(batch) end
  if batch.events == 0 then batch.opened, batch.wrap, batch.bytes = now, wrap, #wrap end
  batch.fresh[#batch.fresh + 1] = piece
  batch.events, batch.bytes = batch.events + 1, batch.bytes + size
  if batch.events >= hook.max_events then seal(batch) end
end

local function seal_if_due(batch)
  if is_due(batch) and not is_busy(lane_of(batch.hook.name), batch.sequence) then seal(batch) end
end

-- Whoever dispatches hears of a deadline that is the first.
local function is_due_at(member, ms)
  local due = format('%.0f', ms)
  redis.call('ZADD', deadlines, due, member)
  if redis.call('ZRANGE', deadlines, 0, 0)[1] == member then redis.call('PUBLISH', wake, '@' .. due) end
end

-- What was not sealed is kept.
local function save_batches()
  for _, batch in pairs(open_batches) do
    local key, was_there = open_key(batch), batch.stored > 0 or batch.is_emptied
    if batch.is_emptied then redis.call('DEL', key) end
    if batch.events == 0 then
      if was_there then
        redis.call('HDEL', batch.hook.key, 'open:' .. batch.sequence)
        redis.call('ZREM', deadlines, batch.member)
      end
    elseif #batch.fresh > 0 then
      if batch.stored == 0 then redis.call('RPUSH', key, batch.wrap) end
      in_pieces('RPUSH', key, batch.fresh)
      redis.call('HSET', batch.hook.key, 'open:' .. batch.sequence,
        format('%.0f', batch.opened) .. ' ' .. batch.events .. ' ' .. format('%.0f', batch.bytes))
      if batch.stored == 0 then is_due_at(batch.member, batch.opened + batch.hook.max_wait) end
    end
  end
  open_batches = {}
end

-- Seals what is due, as far as it can go out.
local function seal_due(most)
  local due = redis.call('ZRANGEBYSCORE', deadlines, '-inf', now, 'LIMIT', 0, most)
  for i = 1, #due do
    local name, sequence = match(due[i], '^(%S+) (%S+)$')
    local hook = hook_of(name)
    local batch = hook and open_batch(hook, sequence)
    if not batch or batch.events == 0 then
      redis.call('ZREM', deadlines, due[i])
    elseif is_busy(lane_of(name), sequence) then
      redis.call('ZADD', deadlines, now + look_again_ms, due[i])
    else
      seal(batch)
    end
  end
  save_batches()
end

local function events_in(item) return tonumber(match(item, '\n{[^\n]-"events":(%d+)')) end

function loses_letter(lane, item)
  local hook = hook_of(name_of[lane])
  if not hook then return end
  tally(hook, 'dead', -events_in(item))
  tally(hook, 'dropped', events_in(item))
end

local function sealed_at(item) return tonumber(match(item, '^%S+ %d+ %S+ %d+ %d+ (%d+) ')) end

-- Where the first batch lies that is behind others of its sequence, of the sequence that has most such; nil when there is none. Answers
-- its object, too.
local function longest_behind(hook, lane)
  local fields, most, longest = {}, 0, nil
  for sequence = 0, define(hook).sequences - 1 do fields[#fields + 1] = object_field(lane, tostring(sequence)) end
  load_objects(fields)
  for _, field in ipairs(fields) do
    local length = first_behind[field] and next_behind[field] - first_behind[field] or 0
    if length > most then most, longest = length, field end
  end
  return longest and longest .. ' ' .. struct.pack('>I6', first_behind[longest]), longest
end

local function drop_behind(lane, at, object, item)
  redis.call('HDEL', behind, at)
  first_behind[object] = first_behind[object] + 1
  behind_of[lane], bytes_of[lane], left_of[lane] = behind_of[lane] - 1, bytes_of[lane] - #item, left_of[lane] + 1
  count('behind', -1)
  count('bytes', -#item)
  count('dropped', 1)
end

-- The item that drop_oldest() drops; nil when none waits.
local function first_waiting(lane)
  write_texts()
  local field = head_of[lane] < tail_of[lane] and place_field(name_of[lane], head_of[lane])
  if not field and ranked_of[lane] > 0 then
    field = name_of[lane] .. ' ' .. redis.call('ZRANGE', ranked_prefix .. name_of[lane], 0, 0)[1]
  end
  return field and redis.call('HGET', items_at, field)
end

-- Gives up the oldest sealed batch of a subscription that nobody holds: the first that waits, or the first of the longest queue behind
-- one that is held or is to be tried again. A sequence that is stuck does not cost the others theirs. Answers its item; nil when there is none.
local function drop_batch(hook)
  local lane = lane_of(hook.name)
  lay_behind()
  local waiting, at, object = first_waiting(lane), longest_behind(hook, lane)
  local item = at and redis.call('HGET', behind, at)
  if item and not (waiting and sealed_at(waiting) <= sealed_at(item)) then
    drop_behind(lane, at, object, item)
  elseif waiting then
    item = waiting
    drop_oldest(lane)
  else
    return nil
  end
  local events = events_in(item)
  tally(hook, 'backlog', -events)
  tally(hook, 'dropped', events)
  return item
end
