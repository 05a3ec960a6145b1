#!lua
-- Append the events of several calls to one partition, each call decided on its own, in the order given.
--
-- KEYS[1] log        stream  one entry per flush (at most 256 events each), fields are pairs (prev, envelope)
-- KEYS[2] meta       hash    last, trimmed, events, bytes, headsClosed
-- KEYS[3] heads      hash    object -> seq of its last event
-- KEYS[4] heads_old  hash    the generation of heads before; there only while meta has headsClosed
-- KEYS[5] topics     hash    topic -> number of events
-- KEYS[6] states     hash    object -> state document
-- KEYS[7] call       string  last flush of this process: "<n> <last seq> <events> <exceptions as JSON>"
-- ARGV[1] process       '' remembers nothing: the flush cannot be repeated safely
-- ARGV[2] n             number of this flush, grows by one per process and partition
-- ARGV[3] floor         highest seq of this partition that the process has seen
-- ARGV[4] now_us        '' means the server's clock (tests pass a number)
-- ARGV[5] once_prefix   an idempotency key's answer is the string  once_prefix .. sha1
-- ARGV[6] wake          channel for the hint
-- ARGV[7] kinds         'tenant:type' of all events, one per line; '' when unknown: lets readers pass over the flush
-- ARGV[8] live          '' or "<partition> <channel prefix>": also publish each event on prefix .. tenant:type
-- ARGV[9] options       '' or JSON [[first event, events, {once, scope, body, expectPrev, state}], …] in order;
--                       an event that none of them covers is a call of its own without options
-- ARGV[10…]             per event: object ("<tenant>/<key>", '' without key), envelope
--
-- Replies {'stored', last_seq, prevs, exception…}: the stored events took the seqs up to last_seq without a hole,
--           prevs are theirs, joined by spaces, empty for null; calls that stored nothing are the exceptions
--           {first event, 'conflict', head} | {first event, 'reused'}
--           {first event, 'duplicate', last_seq, events, prev of the first}
--         {'late'}        a flush with a higher n was here before; nothing written
--         {'malformed'}   an envelope or the options are not as documented; nothing written

local log, meta, heads, heads_old, topics, states, call = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local argv = ARGV
local process, n, floor, now_us = argv[1], tonumber(argv[2]), tonumber(argv[3]), tonumber(argv[4])
local once_prefix, wake, kinds, live, options = argv[5], argv[6], argv[7], argv[8], argv[9]
local events = (#argv - 9) / 2
local call_ms, once_ms, entry_events, max_events = '3600000', '86400000', 256, 1000
local format, match, sub = string.format, string.match, string.sub

-- Numbers above 10^14 become text only this way: Lua's own conversion rounds them. %d is exact up to 2^53 and, at two
-- conversions per event, 10 % of the whole script faster than %.0f.
local function text(number) return format('%d', number) end

-- The answer to a flush that was already written: prevs are read back from its entries, null where those are trimmed.
local function again(last, count, exceptions)
  local kept, prevs = {}, {}
  if count > 0 then
    local first = text(tonumber(last) - count + 1)
    for _, entry in ipairs(redis.call('XRANGE', log, first, last)) do
      for i = 1, #entry[2], 2 do kept[#kept + 1] = entry[2][i] end
    end
  end
  for i = 1, count do prevs[i] = kept[i - count + #kept] or '' end
  return {'stored', last, table.concat(prevs, ' '), unpack(cjson.decode(exceptions))}
end

if process ~= '' then
  local seen = redis.call('GET', call)
  if seen then
    local seen_n, last, count, exceptions = match(seen, '^(%d+) (%d*) (%d+) (.*)$')
    if n < tonumber(seen_n) then return {'late'} end
    if n == tonumber(seen_n) then return again(last, tonumber(count), exceptions) end
  end
end

if events ~= math.floor(events) or events < 1 or events > max_events then return {'malformed'} end

-- Heads of all objects, asked at once; `head` has those that this flush has moved.
local object, envelope, asked = {}, {}, 0
for i = 10, #argv, 2 do
  asked = asked + 1
  object[asked], envelope[asked] = argv[i], argv[i + 1]
end
local head, found = {}, redis.call('HMGET', heads, unpack(object))
local known = redis.call('HMGET', meta, 'last', 'events', 'bytes', 'headsClosed')
if known[4] then
  local missed, at = {}, {}
  for i = 1, asked do
    if not found[i] then missed[#missed + 1], at[#at + 1] = object[i], i end
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
local seq = math.max(last_before, now_us - 1, floor)

-- Decide everything in tables; nothing is written before all of it is decided.
local fields, prevs, new_heads, counts, stored, bytes = {}, {}, {}, {}, 0, 0
local exceptions, new_states, new_onces = {}, {}, {}
local malformed = false

-- The hot loop: everything in locals, and the topic is looked for only where an envelope begins unlike the one before.
local function take(first, count)
  local at, size, own_seq, moved = stored, bytes, seq, #new_heads
  local topic, start, start_length, run = nil, '', 0, 0
  for i = first, first + count - 1 do
    local one, own_envelope = object[i], envelope[i]
    if run == 0 or sub(own_envelope, 1, start_length) ~= start then
      if run > 0 then counts[topic] = (counts[topic] or 0) + run end
      topic = match(own_envelope, '^{"type":"([%w_-]+)[%w_.-]*","tenant":"')
      if not topic then malformed = true return end
      start_length, run = 10 + #topic, 0
      start = sub(own_envelope, 1, start_length)
    end
    run = run + 1
    at, own_seq, size = at + 1, own_seq + 1, size + #own_envelope
    local prev, own = '', format('%d', own_seq)
    if one ~= '' then
      prev = head[one] or found[i] or ''
      head[one] = own
      new_heads[moved + 1], new_heads[moved + 2] = one, own
      moved = moved + 2
    end
    prevs[at] = prev
    fields[2 * at - 1], fields[2 * at] = prev, own_envelope
  end
  counts[topic] = (counts[topic] or 0) + run
  stored, bytes, seq = at, size, own_seq
end

-- Calls with options, and the plain ones between them, in order.
local function take_calls()
  -- Answers the exception that keeps a call from being stored, or nil.
  local function hindrance(first, option)
    if option.once then
      option.once_key = once_prefix .. redis.sha1hex(#option.scope .. ':' .. option.scope .. option.once)
      local seen = new_onces[option.once_key] or redis.call('GET', option.once_key)
      if seen then
        local last, count, prev, body = match(seen, '^(%d+) (%d+) (%d*) (.*)$')
        if body ~= option.body then return {first, 'reused'} end
        return {first, 'duplicate', last, count, prev}
      end
    end
    local current = head[object[first]] or found[first] or ''
    if option.expectPrev and option.expectPrev ~= current then return {first, 'conflict', current} end
  end

  local function is_whole(value) return type(value) == 'number' and value == math.floor(value) end

  -- What is not text would break a write further down, when half of the flush is stored.
  local names = {'once', 'scope', 'body', 'expectPrev', 'state'}
  local function is_option(option, keyed)
    if type(option) ~= 'table' then return false end
    for _, name in ipairs(names) do
      if option[name] ~= nil and type(option[name]) ~= 'string' then return false end
    end
    if not keyed and (option.expectPrev or option.state) then return false end
    return not option.once or (option.scope ~= nil and option.body ~= nil)
  end

  local at, decoded, calls = 1, pcall(cjson.decode, options)
  if not decoded or type(calls) ~= 'table' or #calls == 0 then malformed = true return end
  for _, call_ in ipairs(calls) do
    if type(call_) ~= 'table' then malformed = true return end
    local first, count, option = call_[1], call_[2], call_[3]
    if not is_whole(first) or not is_whole(count) then malformed = true return end
    if first < at or count < 1 or first + count - 1 > events then malformed = true return end
    if not is_option(option, object[first] ~= '') then malformed = true return end
    if first > at then take(at, first - at) end
    local exception, before = hindrance(first, option), stored
    if exception then
      exceptions[#exceptions + 1] = exception
    else
      take(first, count)
      if option.state then new_states[#new_states + 1] = {object[first], option.state} end
      if option.once and not malformed then
        new_onces[option.once_key] = text(seq) .. ' ' .. count .. ' ' .. prevs[before + 1] .. ' ' .. option.body
      end
    end
    at = first + count
  end
  if at <= events then take(at, events - at + 1) end
end

if options == '' then take(1, events) else take_calls() end
if malformed then return {'malformed'} end

-- Write, the log first: it alone can refuse (an id below its last), and then nothing else has changed.
local last = ''
if stored > 0 then
  last = text(seq)
  for from = 1, stored, entry_events do
    local to = math.min(from + entry_events - 1, stored)
    redis.call('XADD', log, text(seq - stored + to) .. '-0', unpack(fields, 2 * from - 1, 2 * to))
  end
  for from = 1, #new_heads, 2 * entry_events do
    redis.call('HSET', heads, unpack(new_heads, from, math.min(from + 2 * entry_events - 1, #new_heads)))
  end
  redis.call('HSET', meta, 'last', last, 'events', text((known[2] or 0) + stored), 'bytes', text((known[3] or 0) + bytes))
  for topic, count in pairs(counts) do redis.call('HINCRBY', topics, topic, text(count)) end
  for _, state in ipairs(new_states) do
    if state[2] == 'null' then redis.call('HDEL', states, state[1]) else redis.call('HSET', states, state[1], state[2]) end
  end
  for key, answer in pairs(new_onces) do redis.call('SET', key, answer, 'PX', once_ms) end
end
if process ~= '' then
  local told = #exceptions > 0 and cjson.encode(exceptions) or '[]'
  redis.call('SET', call, format('%d %s %d %s', n, last, stored, told), 'PX', call_ms)
end
if stored == 0 then return {'stored', last, '', unpack(exceptions)} end

redis.call('PUBLISH', wake, text(last_before) .. ' ' .. last .. '\n' .. kinds)

if live ~= '' then
  local partition, prefix = match(live, '^(%d+) (.*)$')
  for i = 1, stored do
    local own, prev, envelope = text(seq - stored + i), fields[2 * i - 1], fields[2 * i]
    local kind, tenant, rest, data = match(envelope, '^{"type":"([%w_.-]+)","tenant":"([^"]+)"([^\n]*)}\n(.*)$')
    -- Above only the start of an envelope is looked at; what is stored must not fail any more.
    if kind then
      if not string.find(rest, ',"key":"', 1, true) then rest = ',"key":null' .. rest end
      if not string.find(rest, ',"time":%d') then rest = rest .. ',"time":' .. text(math.floor((seq - stored + i) / 1000)) end
      redis.call('PUBLISH', prefix .. tenant .. ':' .. kind, '{"id":"' .. partition .. '-' .. own .. '","seq":' .. own
        .. ',"prev":' .. (prev == '' and 'null' or prev) .. ',"type":"' .. kind .. '","tenant":"' .. tenant .. '"' .. rest
        .. ',"data":' .. data .. '}')
    end
  end
end

return {'stored', last, table.concat(prevs, ' '), unpack(exceptions)}
