-- What all scripts of lanes/ begin with: the keys of a store, its lanes as they were and as they are to be.
--
-- KEYS[1] store        hash  revision (fence of accept), born (revision of the creation), defined (revision whose options these
--                            are), attempts, paused, pausedAt (ms), weighted; turn (number given last); applied:<partition>;
--                            worker:<name> -> its start; waiting, held, bytes (now); in, out, expired, dropped, discarded (ever)
-- KEYS[2] turns        zset  lane -> its number in line: exactly the lanes that can give
-- KEYS[3] lanes        hash  lane -> its record, while it has anything (record_format)
-- KEYS[4] weights      hash  lane -> items per turn, where that is not 1
-- KEYS[5] later        zset  item id, or '@' .. lane, -> ms until which it waits
-- KEYS[6] later_items  hash  item id -> item
-- KEYS[7] leases       zset  token -> ms at which it lapses
-- KEYS[8] holders      hash  token -> "<worker> <start> <claimed ms>"
-- KEYS[9] dead         hash  item id -> "<ms>\30<reason>\30<item>"
-- KEYS[10] dead_order  zset  item id -> ms at which it became a dead letter
-- KEYS[11] idle        zset  who waits for work -> ms since when
-- KEYS[12] waiting     hash  lane .. ' ' .. place (6 bytes) -> item; a lane's places go from its head to before its tail
-- ARGV[1] now            ms; '' means the server's clock (tests pass a number)
-- ARGV[2] ranked_prefix  .. lane: zset, its waiting items with a priority -> place
-- ARGV[3] held_prefix    .. token: hash, item id -> item
-- ARGV[4] wake           channel on which the idle hear their names
-- ARGV[5] field          of the store, which this script asks for besides; '' for none
--
-- An item is one text, "<id> <expires ms or 0> <lane> <attempts> <first claimed ms> <enqueued ms> <priority> <prev>\n<envelope>".
-- It moves whole. Its attempts are those that have ended; a held item is in one more.
--
-- A lane can give when it has something waiting, a weight, and no time to wait for. `turns` holds exactly these: every
-- script that touches a lane ends with save(), which puts it in line or takes it out.

local store, turns, lanes, weights = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local later, later_items, leases, holders = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local dead, dead_order, idle, waiting = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local now, ranked_prefix, held_prefix, wake, field = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local format, match, find, sub, byte = string.format, string.match, string.find, string.sub, string.byte

local most_dead = 10000
-- Whoever waits asks again every second; who has not for this long is gone.
local idle_ms = 3000
-- From the middle of one class of priority to that of the next: room for 2^45 places on each side, and those of priorities
-- up to 100 are whole numbers still (below 2^53).
local class = 2 ^ 46
-- head, tail, bytes, ranked, later, held, dead, entered, left, not_before, credit. These are 88 bytes: a hash with a value of more
-- than 64 is a table from its first field on, and its cost does not grow with its lanes.
local record_format = '>i8i8i8i8i8i8i8i8i8i8i8'

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Read and written with one command each: for a single item that is what a call costs.
local counters = {'turn', 'waiting', 'held', 'bytes', 'in', 'out', 'expired', 'dropped', 'discarded'}
local known = redis.call('HMGET', store, 'revision', 'attempts', 'paused', 'weighted', 'born', field, unpack(counters))
local revision, most_attempts, paused = tonumber(known[1]), tonumber(known[2] or 0), known[3] == '1'
local is_weighted, born, field_value = known[4] == '1', tonumber(known[5]), known[6]
local turn_before = tonumber(known[7] or 0)
local last_turn = turn_before

local long_name = string.rep('-', 65)
-- Places of a new lane begin in the middle: there is room before them for what is put back.
local no_record = struct.pack(record_format, 2 ^ 40, 2 ^ 40, 0, 0, 0, 0, 0, 0, 0, 0, 0)
local loaded, touched, counted = {}, {}, {}

local function count(name, by) counted[name] = (counted[name] or 0) + by end

-- A field of the store that save() writes with the counters.
local noted = {}
local function note(name, value) noted[#noted + 1], noted[#noted + 2] = name, value end

local function waits_in(lane) return lane.tail - lane.head + lane.ranked end

local function gives(lane) return lane.tail - lane.head + lane.ranked > 0 and lane.weight > 0 and lane.not_before == 0 end

-- At most 1,000 names.
local function load_lanes(names)
  local missing = {}
  for i = 1, #names do
    local name = names[i]
    if loaded[name] == nil then
      loaded[name] = false
      missing[#missing + 1] = name
    end
  end
  if #missing == 0 then return end
  local records = redis.call('HMGET', lanes, unpack(missing))
  local weighed = is_weighted and redis.call('HMGET', weights, unpack(missing)) or {}
  for i = 1, #missing do
    local head, tail, bytes, ranked, later_ones, held, dead_ones, entered, left, not_before, credit =
      struct.unpack(record_format, records[i] or no_record)
    -- 16 fields, all of them here: one more, or one later, doubles what a lane costs.
    local lane = {
      name = missing[i], weight = tonumber(weighed[i] or 1), head = head, tail = tail, bytes = bytes, ranked = ranked,
      later = later_ones, held = held, dead = dead_ones, entered = entered, left = left, not_before = not_before, credit = credit,
      gave = false, turn = false, planned = 0,
    }
    lane.gave = gives(lane)
    loaded[lane.name] = lane
    touched[#touched + 1] = lane
  end
end

local function lane_of(name)
  if not loaded[name] then load_lanes({name}) end
  return loaded[name]
end

-- Packed, because writing a number takes Lua longer than all else that an item costs.
local function place_field(name, place) return name .. ' ' .. struct.pack('>I6', place) end

local function next_turn()
  last_turn = last_turn + 1
  return last_turn
end

-- Of any number of names.
local function load_all(names)
  for from = 1, #names, 1000 do load_lanes({unpack(names, from, math.min(from + 999, #names))}) end
end

-- unpack takes no more than some thousand values.
local function in_pieces(command, key, values)
  for from = 1, #values, 1000 do
    redis.call(command, key, unpack(values, from, math.min(from + 999, #values)))
  end
end

local two_digits =
  '00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899'
local hundreds, hundreds_text = -1, ''

-- A turn's number as a text, in a third of the time: of neighbours all but the last two digits are the same.
local function turn_text(turn)
  local low = turn % 100
  if turn - low ~= hundreds then
    hundreds = turn - low
    hundreds_text = hundreds == 0 and '' or format('%.0f', hundreds / 100)
  end
  return hundreds_text .. sub(two_digits, 2 * low + 1, 2 * low + 2)
end

-- Puts the touched lanes that can give now in line, in the order in which they were touched, and takes the others out.
local function line_lanes_up()
  local numbers, count_of_numbers, out = {}, 0, {}
  for i = 1, #touched do
    local lane = touched[i]
    if gives(lane) then
      if not lane.gave then lane.turn = next_turn() end
      if lane.turn then
        numbers[count_of_numbers + 1], numbers[count_of_numbers + 2] = turn_text(lane.turn), lane.name
        count_of_numbers = count_of_numbers + 2
      end
      lane.gave = true
    else
      if lane.gave then out[#out + 1] = lane.name end
      lane.gave, lane.credit = false, 0
    end
    lane.turn = false
  end
  in_pieces('ZREM', turns, out)
  in_pieces('ZADD', turns, numbers)
  -- Up to 128 lanes Redis keeps the line as one piece of memory, and a place at its end costs a walk through all of it. A name of more
  -- than 64 bytes makes it a skip list, which it stays until it is empty.
  if count_of_numbers > 32 then
    redis.call('ZADD', turns, 0, long_name)
    redis.call('ZREM', turns, long_name)
  end
end

-- Every script's last step before its reply: turns, records and counts as they are now.
local function save()
  line_lanes_up()
  local records, count_of_records, gone = {}, 0, {}
  for i = 1, #touched do
    local lane = touched[i]
    if lane.tail - lane.head + lane.ranked + lane.later + lane.held + lane.dead + lane.not_before > 0 then
      records[count_of_records + 1] = lane.name
      records[count_of_records + 2] = struct.pack(record_format, lane.head, lane.tail, lane.bytes, lane.ranked, lane.later, lane.held,
        lane.dead, lane.entered, lane.left, lane.not_before, lane.credit)
      count_of_records = count_of_records + 2
    else
      gone[#gone + 1] = lane.name
    end
  end
  in_pieces('HSET', lanes, records)
  in_pieces('HDEL', lanes, gone)
  count('turn', last_turn - turn_before)
  for i, name in ipairs(counters) do
    local by = counted[name]
    if by and by ~= 0 then note(name, format('%.0f', tonumber(known[6 + i] or 0) + by)) end
  end
  if #noted > 0 then redis.call('HSET', store, unpack(noted)) end
end

-- Where a ranked item stands: those of a higher priority first, then the order in which they came, those that are
-- put back before all others of their priority.
local function place_of(priority, at_head)
  local number = next_turn()
  return format('%.0f', -priority * class + (at_head and -number or number))
end

-- So many more wait in the lane, of so many bytes.
local function waits(lane, items, bytes)
  lane.bytes = lane.bytes + bytes
  count('waiting', items)
  count('bytes', bytes)
end

-- Lets items of one lane wait, in this order, behind what waits there or before it.
local function line_up(lane, items, at_head)
  local plain, ranked, bytes = {}, {}, 0
  for i = 1, #items do
    local item = items[at_head and #items + 1 - i or i]
    local priority = tonumber(match(item, '^%S+ %d+ %S+ %d+ %d+ %d+ (%-?%d+) '))
    bytes = bytes + #item
    if priority ~= 0 then
      ranked[#ranked + 1], ranked[#ranked + 2] = place_of(priority, at_head), item
    elseif at_head then
      lane.head = lane.head - 1
      plain[#plain + 1], plain[#plain + 2] = place_field(lane.name, lane.head), item
    else
      plain[#plain + 1], plain[#plain + 2] = place_field(lane.name, lane.tail), item
      lane.tail = lane.tail + 1
    end
  end
  in_pieces('HSET', waiting, plain)
  in_pieces('ZADD', ranked_prefix .. lane.name, ranked)
  lane.ranked = lane.ranked + #ranked / 2
  waits(lane, #items, bytes)
end

local function oldest_first(items)
  local sorted = {}
  for i = 1, #items do
    local id, enqueued = match(items[i], '^(%S+) %d+ %S+ %d+ %d+ (%d+) ')
    sorted[i] = {id = id, enqueued = tonumber(enqueued), item = items[i]}
  end
  table.sort(sorted, function(a, b)
    if a.enqueued ~= b.enqueued then return a.enqueued < b.enqueued end
    return a.id < b.id
  end)
  for i = 1, #sorted do sorted[i] = sorted[i].item end
  return sorted
end

local function lane_name_of(item) return match(item, '^%S+ %d+ (%S+) ') end

-- Items, of whatever lanes, go back to the heads of their lanes, the oldest first.
local function put_back(items)
  local names, of_lane = {}, {}
  for _, item in ipairs(oldest_first(items)) do
    local name = lane_name_of(item)
    if not of_lane[name] then
      of_lane[name] = {}
      names[#names + 1] = name
    end
    table.insert(of_lane[name], item)
  end
  load_all(names)
  for _, name in ipairs(names) do line_up(loaded[name], of_lane[name], true) end
end

-- The item after one more attempt.
local function tried(item, claimed)
  local id, expires, lane, attempts, first, rest = match(item, '^(%S+) (%d+) (%S+) (%d+) (%d+) (.*)$')
  attempts = tonumber(attempts) + 1
  if first == '0' then first = claimed end
  return table.concat({id, expires, lane, attempts, first, rest}, ' '), id, attempts
end

-- Beyond most_dead the oldest letter gives way.
local function bury(lane, id, item, reason)
  redis.call('HSET', dead, id, format('%.0f', now) .. '\30' .. reason .. '\30' .. item)
  redis.call('ZADD', dead_order, now, id)
  lane.dead = lane.dead + 1
  if redis.call('HLEN', dead) <= most_dead then return end
  local oldest = redis.call('ZPOPMIN', dead_order)[1]
  local its_lane = match(redis.call('HGET', dead, oldest), '^%d+\30[^\30]*\30%S+ %d+ (%S+) ')
  redis.call('HDEL', dead, oldest)
  local gives_way = lane_of(its_lane)
  gives_way.dead, gives_way.left = gives_way.dead - 1, gives_way.left + 1
  count('dropped', 1)
end

-- So many items have become ready: as many of those that wait for work hear their names, unless nothing is given.
local function wake_idle(ready)
  if paused then return end
  local names = {}
  while #names < ready do
    local popped = redis.call('ZPOPMIN', idle, ready - #names)
    if #popped == 0 then break end
    for i = 1, #popped, 2 do
      if tonumber(popped[i + 1]) >= now - idle_ms then names[#names + 1] = popped[i] end
    end
  end
  if #names > 0 then redis.call('PUBLISH', wake, table.concat(names, ' ')) end
end
