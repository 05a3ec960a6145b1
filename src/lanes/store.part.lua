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
-- A lane's record: head, tail, bytes, held, entered, left; then, behind a '+', ranked, later, dead, not_before and credit, or in their
-- place dashes: mostly they are all 0. It has 89 bytes: a hash with a value of more than 64 is a table from its first field on, and
-- its cost does not grow with its lanes.
local record_format, rest_format = '<dddddd', '<ddddd'
local record_bytes, rest_at = 89, 49

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
local no_rest = string.rep('-', record_bytes - rest_at + 1)
-- Places of a new lane begin in the middle: there is room before them for what is put back.
local no_record = struct.pack(record_format, 2 ^ 40, 2 ^ 40, 0, 0, 0, 0) .. no_rest

-- A lane is a number here, and what is known of it lies in these lists: a table for each would cost as much as all else.
local lane_count, loaded, counted = 0, {}, {}
local name_of, weight_of, head_of, tail_of, bytes_of, held_of, entered_of, left_of = {}, {}, {}, {}, {}, {}, {}, {}
local ranked_of, later_of, dead_of, not_before, credit_of = {}, {}, {}, {}, {}
-- Whether it is in line; the number that it is to have there; how many items it is to give.
local gave, turn_of, planned = {}, {}, {}

local function count(name, by) counted[name] = (counted[name] or 0) + by end

-- A field of the store that save() writes with the counters.
local noted = {}
local function note(name, value) noted[#noted + 1], noted[#noted + 2] = name, value end

local function waits_in(lane) return tail_of[lane] - head_of[lane] + ranked_of[lane] end

local function gives(lane) return tail_of[lane] - head_of[lane] + ranked_of[lane] > 0 and weight_of[lane] > 0 and not_before[lane] == 0 end

local function load_lane(name, record, weight)
  local lane = lane_count + 1
  lane_count, loaded[name] = lane, lane
  name_of[lane], weight_of[lane], turn_of[lane] = name, weight, false
  head_of[lane], tail_of[lane], bytes_of[lane], held_of[lane], entered_of[lane], left_of[lane] = struct.unpack(record_format, record)
  if byte(record, rest_at) == 43 then
    ranked_of[lane], later_of[lane], dead_of[lane], not_before[lane], credit_of[lane] = struct.unpack(rest_format, record, rest_at + 1)
  else
    ranked_of[lane], later_of[lane], dead_of[lane], not_before[lane], credit_of[lane] = 0, 0, 0, 0, 0
  end
  gave[lane] = gives(lane)
end

-- At most 1,000 names.
local function load_lanes(names)
  local missing, count_of_missing = {}, 0
  for i = 1, #names do
    local name = names[i]
    if loaded[name] == nil then
      count_of_missing = count_of_missing + 1
      loaded[name], missing[count_of_missing] = false, name
    end
  end
  if count_of_missing == 0 then return end
  local records = redis.call('HMGET', lanes, unpack(missing))
  local weighed = is_weighted and redis.call('HMGET', weights, unpack(missing))
  for i = 1, count_of_missing do
    load_lane(missing[i], records[i] or no_record, weighed and tonumber(weighed[i] or 1) or 1)
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
  for lane = 1, lane_count do
    if gives(lane) then
      if not gave[lane] then turn_of[lane] = next_turn() end
      if turn_of[lane] then
        numbers[count_of_numbers + 1], numbers[count_of_numbers + 2] = turn_text(turn_of[lane]), name_of[lane]
        count_of_numbers = count_of_numbers + 2
      end
      gave[lane] = true
    else
      if gave[lane] then out[#out + 1] = name_of[lane] end
      gave[lane], credit_of[lane] = false, 0
    end
    turn_of[lane] = false
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
  for lane = 1, lane_count do
    local rest = ranked_of[lane] + later_of[lane] + dead_of[lane] + not_before[lane]
    if tail_of[lane] - head_of[lane] + held_of[lane] + rest > 0 then
      records[count_of_records + 1], records[count_of_records + 2] = name_of[lane], struct.pack(record_format, head_of[lane],
        tail_of[lane], bytes_of[lane], held_of[lane], entered_of[lane], left_of[lane])
        .. (rest + credit_of[lane] == 0 and no_rest or '+' .. struct.pack(rest_format, ranked_of[lane], later_of[lane], dead_of[lane],
          not_before[lane], credit_of[lane]))
      count_of_records = count_of_records + 2
    else
      gone[#gone + 1] = name_of[lane]
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
  bytes_of[lane] = bytes_of[lane] + bytes
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
      head_of[lane] = head_of[lane] - 1
      plain[#plain + 1], plain[#plain + 2] = place_field(name_of[lane], head_of[lane]), item
    else
      plain[#plain + 1], plain[#plain + 2] = place_field(name_of[lane], tail_of[lane]), item
      tail_of[lane] = tail_of[lane] + 1
    end
  end
  in_pieces('HSET', waiting, plain)
  in_pieces('ZADD', ranked_prefix .. name_of[lane], ranked)
  ranked_of[lane] = ranked_of[lane] + #ranked / 2
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
  dead_of[lane] = dead_of[lane] + 1
  if redis.call('HLEN', dead) <= most_dead then return end
  local oldest = redis.call('ZPOPMIN', dead_order)[1]
  local its_lane = match(redis.call('HGET', dead, oldest), '^%d+\30[^\30]*\30%S+ %d+ (%S+) ')
  redis.call('HDEL', dead, oldest)
  local gives_way = lane_of(its_lane)
  dead_of[gives_way], left_of[gives_way] = dead_of[gives_way] - 1, left_of[gives_way] + 1
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
