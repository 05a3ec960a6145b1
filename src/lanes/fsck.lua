#!lua flags=no-writes,allow-oom
-- Look at pieces of a store, all of them at one instant. Nothing is changed.
--
-- KEYS[15] remembered  hash  as in send.lua
-- KEYS[16] forget      zset  as in send.lua
-- ARGV[6] most         pieces per answer, about
-- ARGV[7…] asks        each: what, where to begin, of which name:
--   'lanes'       {lane, record…, weight, whether it may hold more, how many are among its ranked, its turn or '', when it is due or ''}; {lane} when its
--                 record cannot be read
--   'turns'       {lane}: in line without a record
--   'later'       {member}: due, but no item and no lane with a record
--   'laterItems'  {field, when it is due or '', item}
--   'leases'      {token, when it lapses, id, item, id, item…}; without an item where none is
--   'objects'     {object, place of the first behind its owner, place of the next one to come}; {object} when it cannot be read
--   'behind'      {object .. ' ' .. place, item}
--   'parked'      {object, item}
--   'dead'        {field, when it died by the order or '', when by the letter or '', item}
--   'deadOrder'   {id}: of no letter
--   'remembered'  {field}: never forgotten
--   'forget'      {field}: of nothing that is remembered
--   'ops'         {operation, state, when it began, ended, whether it is in its index: 1, 0 or - where it need not, whether it is to be
--                 cancelled: 1 or 0}; {operation} when its record, or what it is about, cannot be read
--   'opItems'     the same of those that have no record yet
--   'opsEnded'    {place, "<ms> <operation>…"}
--   'opNotes'     {operation}: of no record
--   'opsLast', 'opsOf'  {object and line}: of no operation that is there, or stands elsewhere; in opsLast the first such of an object
--   'opCounts'    {'total', what it says, how many have ended and are kept, what the minutes say…}
--   'waiting'     of a lane, '0' for all: {bytes} by its record, then "<place> <plain or ranked> <item>", without an item where none is
--   'ranked', 'held'  the key of that name: {} when it is there without a record, or a lease
--
-- An item is described: "<id> <lane> <bytes> <priority> <tenant by its envelope or -> <attempts> <key or ->", or "? <bytes>" when it cannot
-- be read.
--
-- Replies {'seen', marks, totals, answer…}  marks: changes with the store; an answer for each ask: {where to go on or '', row…}
--         {'gone'}                           there is no such store

local argv = ARGV
local remembered, forget = KEYS[15], KEYS[16]
local most = tonumber(argv[6])

if not revision then return {'gone'} end

local concat, insert = table.concat, table.insert

local header = '^(%S+) %d+ (%S+) (%d+) %d+ %d+ (%-?%d+) (%S- ?)%d*\n'
local whole = header .. '{"type":"[^"\\]+","tenant":"([^"\\]+)"[^\n]*}\n.'

local function described(item)
  local id, lane, attempts, priority, key, tenant = match(item, whole)
  if not id then id, lane, attempts, priority, key = match(item, header) end
  if not id then return '? ' .. #item end
  key = match(key, '^(%S+) $') or '-'
  return id .. ' ' .. lane .. ' ' .. #item .. ' ' .. priority .. ' ' .. (tenant or '-') .. ' ' .. attempts .. ' ' .. key
end

local function numbers(...)
  local texts = {...}
  for i = 1, #texts do texts[i] = format('%.0f', texts[i]) end
  return texts
end

local function score(key, member) return redis.call('ZSCORE', key, member) or '' end

-- The fields or members from a cursor on: each gives a row, or none.
local function scan(command, key, from, row_of)
  local page = redis.call(command, key, from, 'COUNT', most)
  local answer = {page[1] == '0' and '' or page[1]}
  for i = 1, #page[2], 2 do answer[#answer + 1] = row_of(page[2][i], page[2][i + 1]) end
  return answer
end

local function is_record(text) return #text == (byte(text, rest_at) == 43 and record_bytes or plain_bytes) end

local function lane_row(name, record)
  if not is_record(record) then return {name} end
  local head, tail, bytes, held = struct.unpack(record_format, record)
  local ranked, later_ones, dead_ones, wait, credit, parked_ones, behind_ones, paced = 0, 0, 0, 0, 0, 0, 0, 0
  if byte(record, rest_at) == 43 then
    ranked, later_ones, dead_ones, wait, credit, parked_ones, behind_ones, paced = struct.unpack(rest_format, record, rest_at + 1)
  end
  local row = numbers(head, tail, bytes, ranked, later_ones, held, dead_ones, wait, parked_ones, behind_ones, paced)
  insert(row, is_weighted and redis.call('HGET', weights, name) or '1')
  insert(row, held < cap_of_lane and '1' or '0')
  insert(row, 1, name)
  insert(row, redis.call('ZCARD', ranked_prefix .. name))
  insert(row, score(turns, name))
  insert(row, score(later, '@' .. name))
  return row
end

local function lease_row(token, lapses)
  local row, lease = {token, lapses}, read_lease(token)
  for i = 1, lease and lease.size or 0 do
    local item = redis.call('HGET', items_at, lease.fields[i])
    row[#row + 1] = lease.ids[i]
    row[#row + 1] = item and described(item) or ''
  end
  return row
end

local function letter_row(id, letter)
  local died, item = match(letter, '^(%d+)\30[^\30]*\30(.*)$')
  return {id, score(dead_order, id), died or '', described(item or '')}
end

local function object_row(object, packed)
  if #packed ~= 12 then return {object} end
  local first, next_one = struct.unpack('>I6I6', packed)
  return {object, format('%.0f', first), format('%.0f', next_one)}
end

-- Behind the last space are six bytes: a place.
local function behind_row(field, item)
  return {sub(field, 1, -7) .. format('%.0f', struct.unpack('>I6', sub(field, -6))), described(item)}
end

local function parked_row(object, letter) return {object, described(match(letter, '^%d+\30[^\30]*\30(.*)$') or '')} end

local function without(key)
  return function(field)
    if redis.call('HEXISTS', key, field) == 0 then return {field} end
  end
end

local sections = {
  lanes = function(from) return scan('HSCAN', lanes, from, lane_row) end,
  turns = function(from) return scan('ZSCAN', turns, from, without(lanes)) end,
  later = function(from)
    return scan('ZSCAN', later, from, function(member)
      if sub(member, 1, 1) ~= '@' then return without(later_items)(member) end
      if redis.call('HEXISTS', lanes, sub(member, 2)) == 0 then return {member} end
    end)
  end,
  laterItems = function(from)
    return scan('HSCAN', later_items, from, function(id, item) return {id, score(later, id), described(item)} end)
  end,
  leases = function(from) return scan('ZSCAN', leases, from, lease_row) end,
  objects = function(from) return scan('HSCAN', objects, from, object_row) end,
  behind = function(from) return scan('HSCAN', behind, from, behind_row) end,
  parked = function(from) return scan('HSCAN', parked, from, parked_row) end,
  dead = function(from) return scan('HSCAN', dead, from, letter_row) end,
  deadOrder = function(from) return scan('ZSCAN', dead_order, from, without(dead)) end,
  remembered = function(from)
    return scan('HSCAN', remembered, from, function(field)
      if not redis.call('ZSCORE', forget, field) then return {field} end
    end)
  end,
  forget = function(from) return scan('ZSCAN', forget, from, without(remembered)) end,
}

-- First the places without a priority, then the ranked: a place there is written with an 'r'.
function sections.waiting(from, name)
  local record = redis.call('HGET', lanes, name)
  if not record or not is_record(record) then return {''} end
  local head, tail, bytes = struct.unpack(record_format, record)
  local answer, left, rank = {'', {format('%.0f', bytes)}}, most, tonumber(match(from, '^r(%d+)$'))
  if not rank then
    local first = from == '0' and head or math.max(head, tonumber(sub(from, 2)))
    local last, rank_from = math.min(tail, first + left), #answer
    local places = {}
    for place = first, last - 1 do places[#places + 1] = place_field(name, place) end
    for at = 1, #places, 1000 do
      for _, item in ipairs(redis.call('HMGET', items_at, unpack(places, at, math.min(at + 999, #places)))) do
        local place = first + #answer - rank_from
        answer[#answer + 1] = place .. ' plain ' .. (item and described(item) or '')
      end
    end
    if last < tail then
      answer[1] = 'p' .. last
      return answer
    end
    left, rank = left - #places, 0
  end
  local ranked = left > 0 and redis.call('ZRANGE', ranked_prefix .. name, rank, rank + left - 1) or {}
  for i, place in ipairs(ranked) do
    local item = redis.call('HGET', items_at, name .. ' ' .. place)
    answer[#answer + 1] = (rank + i - 1) .. ' ranked ' .. (item and described(item) or '')
  end
  if rank + #ranked < redis.call('ZCARD', ranked_prefix .. name) then answer[1] = 'r' .. (rank + #ranked) end
  return answer
end

-- Of a queue that is not tracked there are none.
local base = sub(store, 1, -6)

-- What an operation is about; nil when that cannot be read.
local function kept_item(name)
  local item = redis.call('HGET', base .. 'opItems', name)
  return item and match(item, '^%S+ %d+ %S+ %d+ %d+ %d+ [^\n]*\n[^\n]*\n') and item or nil
end

-- record: nil for one that has none yet.
local function operation_row(name, record)
  local item = kept_item(name)
  if not item or record and not match(record, '^%S+ [^\30]*\30', 22) then return {name, '0'} end
  local object, line = track.index.place_of(item, name)
  local state, _, _, began, ended = 1, 0, 0, 0, 0
  if record then state, _, _, began, ended = struct.unpack('>BI4I4I6I6', record) end
  local mark = redis.call('HEXISTS', base .. 'opCancels', name)
  -- Who asks what its object has takes those that are over out of the index, before they go.
  local is_over = state >= 3 and track.is_over(ended)
  local indexed = object ~= '' and not is_over and (track.index.has(object, line) and '1' or '0') or '-'
  local row = numbers(state, began, ended)
  insert(row, 1, name)
  insert(row, indexed)
  insert(row, tostring(mark))
  return row
end

function sections.ops(from)
  if not track then return {''} end
  return scan('HSCAN', base .. 'ops', from, operation_row)
end

function sections.opsEnded(from)
  local first, key = tonumber(from), base .. 'opsEnded'
  local page = redis.call('LRANGE', key, first, first + most - 1)
  local answer = {#page == most and format('%.0f', first + most) or ''}
  for i = 1, #page do answer[#answer + 1] = {format('%.0f', first + i), page[i]} end
  return answer
end

function sections.opNotes(from) return scan('HSCAN', base .. 'opNotes', from, without(base .. 'ops')) end
function sections.opItems(from)
  if not track then return {''} end
  return scan('HSCAN', base .. 'opItems', from, function(name)
    if redis.call('HEXISTS', base .. 'ops', name) == 0 then return operation_row(name) end
  end)
end

-- Whether an operation that is there stands there.
local function stands(object_and_line)
  local name = match(object_and_line, '^.* (.*)$') or ''
  local item = kept_item(name)
  if not item then return false end
  local object, line = track.index.place_of(item, name)
  return object .. line == object_and_line
end

function sections.opsLast(from)
  if not track then return {''} end
  return scan('HSCAN', base .. 'opsLast', from, function(object, entries)
    local lines = track.index.lines_in(entries)
    if #lines == 0 then return {object} end
    for _, line in ipairs(lines) do
      if not stands(object .. line) then return {object .. line} end
    end
  end)
end

function sections.opsOf(from)
  if not track then return {''} end
  return scan('ZSCAN', base .. 'opsOf', from, function(place)
    if not stands(place) then return {place} end
  end)
end

function sections.opCounts()
  local total, kept = unpack(redis.call('HMGET', base .. 'opCounts', 'total', 'kept'))
  local row, fields = {'total', total or '0 0 0', kept or '0'}, redis.call('HGETALL', base .. 'opCounts')
  for i = 1, #fields, 2 do
    if tonumber(fields[i]) then row[#row + 1] = fields[i + 1] end
  end
  return {'', row}
end

local function stray(prefix, owners, name)
  if redis.call('EXISTS', prefix .. name) == 0 or owners(name) then return {''} end
  return {'', {}}
end
local function has_record(name) return redis.call('HEXISTS', lanes, name) == 1 end
local function has_lease(name) return redis.call('ZSCORE', leases, name) end
function sections.ranked(_, name) return stray(ranked_prefix, has_record, name) end
function sections.held(_, name) return stray(held_prefix, has_lease, name) end

-- As the store has them, without `turn`; then what is there.
local totals = {}
for i = 2, #counters do totals[#totals + 1] = known[counters_at + i] or '0' end
for _, key in ipairs({later_items, dead, lanes, items_at, remembered, weights, objects, behind, parked}) do totals[#totals + 1] = redis.call('HLEN', key) end
totals[#totals + 1] = is_weighted and 1 or 0
totals[#totals + 1] = redis.call('ZCARD', leases)
totals[#totals + 1] = redis.call('HLEN', base .. 'opItems')

-- The lease that lapses last tells of most that claims, renewals and extensions do without a trace in the counters.
local marks = concat(totals, ' ') .. format(' %.0f %d %d ', last_turn, redis.call('ZCARD', turns), redis.call('ZCARD', later))
  .. concat(redis.call('ZRANGE', leases, -1, -1, 'WITHSCORES'), ' ')
  .. format(' %d %d %d', redis.call('HLEN', base .. 'ops'), redis.call('LLEN', base .. 'opsEnded'), redis.call('HLEN', base .. 'opCancels'))

local reply = {'seen', marks, totals}
for at = 7, #argv, 3 do reply[#reply + 1] = sections[argv[at]](argv[at + 1], argv[at + 2]) end
return reply
