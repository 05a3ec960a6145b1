#!lua
-- Append the events of several calls to one partition, each call decided on its own, in the order given.
--
-- KEYS[1] log        stream  one entry per flush (at most 256 events each) of two fields: the prevs of its events joined by
--                            spaces, and their records
-- KEYS[2] meta       hash    last, trimmed, events, bytes, headsClosed, closedUntil (ms); topic:<topic> -> number of events;
--                            last:<topic> -> seq of the last flush that had the topic;
--                            call:<process> -> its last flush, "<n> <seq> <events> <exceptions as JSON>"
-- KEYS[3] heads      hash    object -> seq of its last event
-- KEYS[4] heads_old  hash    the generation of heads before; there only while meta has headsClosed
-- KEYS[5] states     hash    object -> state document
-- KEYS[6] delayed         zset  number of a delayed event -> µs at which it is due; this and the next only with `delayed`
-- KEYS[7] delayed_events  hash  number -> envelope
-- ARGV[1] process       '' remembers nothing: the flush cannot be repeated safely
-- ARGV[2] n             number of this flush, grows by one per process and partition
-- ARGV[3] floor         highest seq of this partition that the process has seen
-- ARGV[4] now_us        '' means the server's clock (tests pass a number)
-- ARGV[5] once_prefix   an idempotency key's answer is the string  once_prefix .. sha1
-- ARGV[6] wake          channel for the hint, "<ns>:…"; each topic's hint goes to "<ns>:wake:<topic>" too
-- ARGV[7] kinds         'tenant:type' of all events, one per line; '' when unknown: lets readers pass over the flush
-- ARGV[8] live          '' or "<partition> <channel prefix>": also publish each event on prefix .. tenant:type
-- ARGV[9] options       '' or JSON [[first event, events, {once, scope, body, expectPrev, state, delayed}], …] in order;
--                       an event that none of them covers is a call of its own without options
-- ARGV[10] records      of all events, one behind the other: a record separator and the envelope
-- ARGV[11…] objects     of each event: "<tenant>/<key>", '' without key
--
-- Replies {'stored', last_seq, prevs, exception…}: the stored events took the seqs up to last_seq without a hole,
--           prevs are theirs, joined by spaces, empty for null; calls that stored nothing are the exceptions
--           {first event, 'conflict', head} | {first event, 'reused'} | {first event, 'gone'}
--           {first event, 'duplicate', last_seq, events, prev of the first}
--         {'closed', ms}  Redis is nearly full, until then nothing is stored
--         {'late'}        a flush with a higher n was here before; nothing written
--         {'malformed'}   records and objects do not match, an envelope does not begin with a type, or the options are not as
--                         documented; nothing written
--
-- All that is known is read with two commands and written with three, and tables are made only where they are needed. A lone plain event of
-- a process has a shorter way: publish-one.lua.

local log, meta, heads, heads_old, states = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local delayed, delayed_events = KEYS[6], KEYS[7]
local argv = ARGV
local process, n, now_us, options = argv[1], tonumber(argv[2]), tonumber(argv[4]), argv[9]
local events, records = #argv - 10, argv[10]
local format, find, match, sub = string.format, string.find, string.match, string.sub
local entry_events, max_events, max_fields, call_us, once_ms = 256, 1000, 128, 3600000000, '86400000'
local max_told = 16

if events < 1 or events > max_events then return {'malformed'} end

-- An envelope begins with its type; the topic is the type's first segment. The separator stands in no JSON text.
local separator, topic_shape = '\30', '^\30{"type":"([%w_-]+)[%w_.-]*","tenant":"'
local first_topic = match(records, topic_shape)
if not first_topic then return {'malformed'} end

-- Where each record begins, and the topics of those that are not of the first one.
local begins, other_topics = {1}, {}
local start = sub(records, 1, 11 + #first_topic)
local start_length = #start
for i = 1, events do
  local at = begins[i]
  -- The topic is looked for only where a record begins unlike the first one.
  if sub(records, at, at + start_length - 1) ~= start then
    local topic = match(records, topic_shape, at)
    if not topic then return {'malformed'} end
    -- `order` and `order.paid` begin differently and are one topic.
    if topic ~= first_topic then other_topics[i] = topic end
  end
  local following = find(records, separator, at + 1, true)
  if (following == nil) ~= (i == events) then return {'malformed'} end
  begins[i + 1] = following or #records + 1
end

local call, first_field, first_last = 'call:' .. process, 'topic:' .. first_topic, 'last:' .. first_topic
local known = redis.call('HMGET', meta, 'last', 'events', 'bytes', 'headsClosed', first_field, call, first_last, 'closedUntil')

-- Readers of some topics need not hear of the others: they are told when those of this flush were there before, and so
-- what they missed.
local namespace = match(argv[6], '^[^:]*')
local topic_wake = namespace .. ':wake:'
local function before_of(topic, before) return topic .. ':' .. (before or '0') end

-- Written before: the prevs are read back from its entries, null where those are trimmed.
local function again(last, count, exceptions)
  local kept, prevs = {}, {}
  if count > 0 then
    for _, entry in ipairs(redis.call('XRANGE', log, format('%d', last - count + 1), last)) do
      for prev in string.gmatch(entry[2][1] .. ' ', '(%d*) ') do kept[#kept + 1] = prev end
    end
  end
  for i = 1, count do prevs[i] = kept[i - count + #kept] or '' end
  return {'stored', last, table.concat(prevs, ' '), unpack(cjson.decode(exceptions))}
end

if known[6] and process ~= '' then
  local seen_n, last, count, exceptions = match(known[6], '^(%d+) (%d+) (%d+) (.*)$')
  if n < tonumber(seen_n) then return {'late'} end
  if n == tonumber(seen_n) then return again(last, tonumber(count), exceptions) end
end

-- Redis is nearly full: whoever works off what is stored must find room.
if known[8] then
  local time = redis.call('TIME')
  if (now_us or time[1] * 1000000 + time[2]) < tonumber(known[8]) * 1000 then return {'closed', known[8]} end
end

-- Heads of all objects, asked at once; `head` has those that this flush has moved.
local function object(i) return argv[i + 10] end
local head, found = {}, redis.call('HMGET', heads, unpack(argv, 11))
if known[4] then
  local missed, at = {}, {}
  for i = 1, events do
    if not found[i] then missed[#missed + 1], at[#at + 1] = object(i), i end
  end
  if #missed > 0 then
    local old = redis.call('HMGET', heads_old, unpack(missed))
    for i = 1, #missed do found[at[i]] = old[i] end
  end
end

if not now_us then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
end
local last_before = tonumber(known[1] or 0)
local seq = math.max(last_before, now_us - 1, tonumber(argv[3]))

-- Decide everything in tables; nothing is written before all of it is decided. The prevs of the stored events move up in
-- `found`, which saves a list; `kept` says which events they are, where some are not stored.
local new_heads, stored, bytes, kept = {}, 0, 0, options ~= '' and {} or nil
local first_count, counts, exceptions, new_states, new_onces, appended, malformed = 0, {}, {}, {}, {}, {}, false

local function take(first, count)
  local at, moved = stored, #new_heads
  for i = first, first + count - 1 do
    local one, topic, prev = argv[i + 10], other_topics[i], ''
    if topic then counts[topic] = (counts[topic] or 0) + 1 else first_count = first_count + 1 end
    seq, at = seq + 1, at + 1
    if one ~= '' then
      -- Numbers above 10^14 become text only by format: Lua's own conversion rounds them. %d is exact up to 2^53.
      local own = format('%d', seq)
      prev = head[one] or found[i] or ''
      head[one] = own
      new_heads[moved + 1], new_heads[moved + 2] = one, own
      moved = moved + 2
    end
    found[at] = prev
    if kept then kept[at] = i end
  end
  stored, bytes = at, bytes + begins[first + count] - begins[first] - count
end

-- The records of the stored events from `first` to `last`.
local function records_of(first, last)
  if stored == events then
    if last - first + 1 == events then return records end
    return sub(records, begins[first], begins[last + 1] - 1)
  end
  local list = {}
  for k = first, last do list[#list + 1] = sub(records, begins[kept[k]], begins[kept[k] + 1] - 1) end
  return table.concat(list)
end

-- Calls with options, and the plain ones between them, in order.
local function take_calls()
  -- Answers the exception that keeps a call from being stored, or nil.
  local function hindrance(first, option)
    if option.once then
      option.once_key = argv[5] .. redis.sha1hex(#option.scope .. ':' .. option.scope .. option.once)
      local seen = new_onces[option.once_key] or redis.call('GET', option.once_key)
      if seen then
        local last, count, prev, body = match(seen, '^(%d+) (%d+) (%d*) (.*)$')
        if body ~= option.body then return {first, 'reused'} end
        return {first, 'duplicate', last, count, prev}
      end
    end
    if option.delayed and (appended[option.delayed] or not redis.call('ZSCORE', delayed, option.delayed)) then
      return {first, 'gone'}
    end
    local current = head[object(first)] or found[first] or ''
    if option.expectPrev and option.expectPrev ~= current then return {first, 'conflict', current} end
  end

  local function is_whole(value) return type(value) == 'number' and value == math.floor(value) end

  -- What is not text would break a write further down, when half of the flush is stored.
  local names = {'once', 'scope', 'body', 'expectPrev', 'state', 'delayed'}
  local function is_option(option, keyed)
    if type(option) ~= 'table' then return false end
    for _, name in ipairs(names) do
      if option[name] ~= nil and type(option[name]) ~= 'string' then return false end
    end
    if not keyed and (option.expectPrev or option.state) then return false end
    if option.delayed and not delayed_events then return false end
    return not option.once or (option.scope ~= nil and option.body ~= nil)
  end

  local at, decoded, calls = 1, pcall(cjson.decode, options)
  if not decoded or type(calls) ~= 'table' or #calls == 0 then malformed = true return end
  for _, given in ipairs(calls) do
    if type(given) ~= 'table' then malformed = true return end
    local first, count, option = given[1], given[2], given[3]
    if not is_whole(first) or not is_whole(count) then malformed = true return end
    if first < at or count < 1 or first + count - 1 > events then malformed = true return end
    if not is_option(option, object(first) ~= '') then malformed = true return end
    if first > at then take(at, first - at) end
    local exception, before = hindrance(first, option), stored
    if exception then
      exceptions[#exceptions + 1] = exception
    else
      take(first, count)
      if option.delayed then appended[option.delayed] = true end
      if option.state then new_states[#new_states + 1] = {object(first), option.state} end
      if option.once then
        new_onces[option.once_key] = format('%d %d %s %s', seq, count, found[before + 1], option.body)
      end
    end
    at = first + count
  end
  if at <= events then take(at, events - at + 1) end
end

if options == '' then take(1, events) else take_calls() end
if malformed then return {'malformed'} end

-- Forgets the last flushes of processes that were silent for an hour; done when a new one finds many.
local function forget_calls()
  local all = redis.call('HGETALL', meta)
  for i = 1, #all, 2 do
    local at = sub(all[i], 1, 5) == 'call:' and match(all[i + 1], '^%d+ (%d+)')
    if at and tonumber(at) < now_us - call_us then redis.call('HDEL', meta, all[i]) end
  end
end

-- Write, the log first: it alone can refuse (an id below its last), and then nothing else has changed.
local last = format('%d', seq)
for from = 1, stored, entry_events do
  local to = math.min(from + entry_events - 1, stored)
  local id, chain = format('%d-0', seq - stored + to), table.concat(found, ' ', from, to)
  redis.call('XADD', log, id, chain, records_of(from, to))
end
for from = 1, #new_heads, 2 * entry_events do
  redis.call('HSET', heads, unpack(new_heads, from, math.min(from + 2 * entry_events - 1, #new_heads)))
end
for _, state in ipairs(new_states) do
  if state[2] == 'null' then redis.call('HDEL', states, state[1]) else redis.call('HSET', states, state[1], state[2]) end
end
for key, answer in pairs(new_onces) do redis.call('SET', key, answer, 'PX', once_ms) end
for number in pairs(appended) do
  redis.call('ZREM', delayed, number)
  redis.call('HDEL', delayed_events, number)
end
for topic, count in pairs(counts) do redis.call('HINCRBY', meta, 'topic:' .. topic, count) end

local changes = {}
if stored > 0 then
  changes = {'last', last, 'events', format('%d', (known[2] or 0) + stored), 'bytes', format('%d', (known[3] or 0) + bytes)}
end
if first_count > 0 then
  changes[#changes + 1], changes[#changes + 2] = first_field, format('%d', (known[5] or 0) + first_count)
  changes[#changes + 1], changes[#changes + 2] = first_last, last
end
local topics, befores = {first_count > 0 and first_topic or nil}, {first_count > 0 and before_of(first_topic, known[7]) or nil}
for topic in pairs(counts) do
  local field = 'last:' .. topic
  topics[#topics + 1], befores[#befores + 1] = topic, before_of(topic, redis.call('HGET', meta, field))
  changes[#changes + 1], changes[#changes + 2] = field, last
end
if process ~= '' then
  if n == 1 and redis.call('HLEN', meta) > max_fields then forget_calls() end
  local told = #exceptions > 0 and cjson.encode(exceptions) or '[]'
  changes[#changes + 1], changes[#changes + 2] = call, format('%d %s %d ', n, last, stored) .. told
end
if #changes > 0 then redis.call('HSET', meta, unpack(changes)) end
if stored == 0 then return {'stored', last, '', unpack(exceptions)} end

local hint = format('%d %s\n', last_before, last) .. argv[7]
redis.call('PUBLISH', argv[6], hint)
local told_before = #befores <= max_told and table.concat(befores, ',') or ''
for i = 1, #topics do redis.call('PUBLISH', topic_wake .. topics[i], argv[6] .. ' ' .. told_before .. ' ' .. hint) end

if argv[8] ~= '' then
  local partition, prefix = match(argv[8], '^(%d+) (.*)$')
  for i = 1, stored do
    local own, prev, envelope = format('%d', seq - stored + i), found[i], sub(records_of(i, i), 2)
    local kind, tenant, rest, data = match(envelope, '^{"type":"([%w_.-]+)","tenant":"([^"]+)"([^\n]*)}\n(.*)$')
    -- Above only the start of an envelope is looked at; what is stored must not fail any more.
    if kind then
      if not find(rest, ',"key":"', 1, true) then rest = ',"key":null' .. rest end
      if not find(rest, ',"time":%d') then rest = rest .. ',"time":' .. sub(own, 1, -4) end
      redis.call('PUBLISH', prefix .. tenant .. ':' .. kind, '{"id":"' .. partition .. '-' .. own .. '","seq":' .. own
        .. ',"prev":' .. (prev == '' and 'null' or prev) .. ',"type":"' .. kind .. '","tenant":"' .. tenant .. '"' .. rest
        .. ',"data":' .. data .. '}')
    end
  end
end

return {'stored', last, table.concat(found, ' ', 1, stored), unpack(exceptions)}
