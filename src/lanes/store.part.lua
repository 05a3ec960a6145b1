-- What all scripts of lanes/ begin with: the keys of a store, its lanes as they were and as they are to be.
--
-- KEYS[1] store        hash  revision (fence of accept), born (revision of the creation), defined (revision whose options these
--                            are), attempts, paused, pausedAt (ms), weighted, ordered, parks, limits, track; turn (number given last); paced (ms);
--                            applied:<partition>; worker:<name> -> its start; waiting, behind, held, bytes,
--                            deadBytes (of the dead letters' items; now); in, out, expired, dropped, discarded (ever)
-- KEYS[2] turns        zset  lane -> its number in line: exactly the lanes that can give
-- KEYS[3] lanes        hash  lane -> its record, while it has anything (record_format)
-- KEYS[4] weights      hash  lane -> items per turn, where that is not 1
-- KEYS[5] later        zset  item id, or '@' .. lane, -> ms until which it waits
-- KEYS[6] later_items  hash  item id -> item
-- KEYS[7] leases       zset  token -> ms at which it lapses
-- KEYS[8] items_at     hash  lane .. ' ' .. place (6 bytes) -> item that waits or is held; those that wait without a priority are
--                            at the places from their lane's head to before its tail
-- KEYS[9] dead         hash  item id -> "<ms>\30<reason>\30<item>"
-- KEYS[10] dead_order  zset  item id -> ms at which it became a dead letter
-- KEYS[11] idle        zset  who waits for work -> ms since when
-- KEYS[12] objects     hash  of an ordered queue: lane .. ' ' .. key -> places (6 bytes each) of the first that is behind its owner, and
--                            of the next one to come (order.part.lua)
-- KEYS[13] behind      hash  lane .. ' ' .. key .. ' ' .. place (6 bytes) -> item
-- KEYS[14] parked      hash  lane .. ' ' .. key -> "<ms>\30<reason>\30<item>"
-- ARGV[1] now            ms; '' means the server's clock (tests pass a number)
-- ARGV[2] ranked_prefix  .. lane: zset, its waiting items with a priority -> place
-- ARGV[3] held_prefix   .. token: "<worker> <start> <claimed ms> ", then lists in MessagePack: where the items that it holds lie in
--                        items_at, their ids and, of an ordered queue, their keys
-- ARGV[4] wake           channel on which the idle hear their names
-- ARGV[5] asked          fields of the store that this script asks for besides, with spaces between them
--
-- An item is one text, "<id> <expires ms or 0> <lane> <attempts> <first claimed ms> <enqueued ms> <priority> <prev>\n<envelope>"; in an
-- ordered queue its key is a word before prev, if it has one. Its attempts are those that have ended; a held item is in one more.
--
-- A lane can give when it has something waiting, a weight, no time to wait for, and holds less than it may. `turns` holds exactly these:
-- every script that touches a lane ends with save(), which puts it in line or takes it out.

local store, turns, lanes, weights = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, asked = tonumber(ARGV[1]), ARGV[5]
local format, sub, byte, pack = string.format, string.sub, string.byte, struct.pack

-- A lane's record: head, tail, bytes, held, left; then, behind a '+', ranked, later, dead, not_before, credit, parked, behind and paced, or
-- dashes: mostly they are all 0. So many dashes that it has more than 64 bytes: a hash with such a value is a table from its first
-- field on, and its cost does not grow with its lanes.
local record_format, rest_format, plain_format, whole_format = '<ddddd', '<dddddddd', '<dddddc25', '<dddddc1dddddddd'
local rest_at, plain_bytes, record_bytes = 41, 65, 105

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Read and written with one command each: for a single item that is what a call costs.
local counters = {'turn', 'waiting', 'behind', 'held', 'bytes', 'in', 'out', 'expired', 'dropped', 'discarded', 'deadBytes'}
local read = {'revision', 'attempts', 'paused', 'weighted', 'born', 'ordered', 'parks', 'limits', 'paced', 'track', unpack(counters)}
for name in string.gmatch(asked, '%S+') do read[#read + 1] = name end
local known = redis.call('HMGET', store, unpack(read))
local revision, most_attempts, paused = tonumber(known[1]), tonumber(known[2] or 0), known[3] == '1'
local is_weighted, born = known[4] == '1', tonumber(known[5])
local is_ordered, parks = known[6] == '1', known[7] == '1'
-- "<mode> <what is never shown>", and " mixed" or " returned", of a tracked queue (operations.part.lua).
local tracking, track = known[10], nil
local counters_at, asked_at = 10, 10 + #counters
-- "<held per lane> <held in all> <share> <ms per item> <ms of them at once> <the same per lane> <backlog per lane> <overflow>", 0 for none.
local limits = known[8]
local function cap_in(words)
  local cap = tonumber(string.match(words or '', '^%d+') or 0)
  return cap > 0 and cap or math.huge
end
local cap_of_lane = cap_in(limits)
local asked_for = {}
for i = asked_at + 1, #read do asked_for[read[i]] = known[i] end
local turn_before = tonumber(known[counters_at + 1] or 0)
local last_turn = turn_before
local dead_bytes = tonumber(known[asked_at] or 0)

local long_name = string.rep('-', 65)
local no_rest = string.rep('-', plain_bytes - rest_at + 1)
-- Places of a new lane begin in the middle: there is room before them for what is put back.
local no_record = pack(plain_format, 2 ^ 40, 2 ^ 40, 0, 0, 0, no_rest)

-- A lane is a number here, and what is known of it lies in these lists: a table for each would cost as much as all else.
local lane_count, loaded, counted = 0, {}, {}
local name_of, weight_of, head_of, tail_of, bytes_of, held_of, left_of = {}, {}, {}, {}, {}, {}, {}
local ranked_of, later_of, dead_of, not_before, credit_of = {}, {}, {}, {}, {}
-- Of the lanes that have any, in an ordered queue or one with rates.
local parked_of, behind_of, paced_of = {}, {}, {}
-- Lanes that had nothing but what they had used of their rate: they are in `later` for that.
local only_paced = {}
-- Whether it is in line; the number that it is to have there; how many items it is to give.
local gave, turn_of, planned = {}, {}, {}

local function count(name, by) counted[name] = (counted[name] or 0) + by end

-- What a counter is now.
local function in_all(name)
  local at = 1
  while counters[at] ~= name do at = at + 1 end
  return tonumber(known[counters_at + at] or 0) + (counted[name] or 0)
end

-- A field of the store that save() writes with the counters.
local noted = {}
local function note(name, value) noted[#noted + 1], noted[#noted + 2] = name, value end

local function waits_in(lane) return tail_of[lane] - head_of[lane] + ranked_of[lane] end

local function gives(lane)
  return tail_of[lane] - head_of[lane] + ranked_of[lane] > 0 and weight_of[lane] > 0 and not_before[lane] == 0
    and held_of[lane] < cap_of_lane
end

local function load_lane(name, record, weight)
  local lane = lane_count + 1
  local head, tail, bytes, held, left = struct.unpack(record_format, record)
  lane_count, loaded[name], name_of[lane], weight_of[lane] = lane, lane, name, weight
  head_of[lane], tail_of[lane], bytes_of[lane], held_of[lane], left_of[lane] = head, tail, bytes, held, left
  if byte(record, rest_at) == 43 then
    ranked_of[lane], later_of[lane], dead_of[lane], not_before[lane], credit_of[lane], parked_of[lane], behind_of[lane],
      paced_of[lane] = struct.unpack(rest_format, record, rest_at + 1)
    only_paced[lane] = paced_of[lane] > 0
      and tail - head + held + ranked_of[lane] + later_of[lane] + dead_of[lane] + not_before[lane] + parked_of[lane] + behind_of[lane] == 0
    gave[lane] = gives(lane)
  else
    ranked_of[lane], later_of[lane], dead_of[lane], not_before[lane], credit_of[lane] = 0, 0, 0, 0, 0
    gave[lane] = tail > head and weight > 0 and held < cap_of_lane
  end
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
local function place_field(name, place) return name .. ' ' .. pack('>I6', place) end

local function next_turn()
  last_turn = last_turn + 1
  return last_turn
end

-- Something comes to a lane: if it is not in line, and can give then, its turn is behind those of all others.
local function enters(lane)
  if not gave[lane] and not turn_of[lane] and weight_of[lane] > 0 and not_before[lane] == 0 and held_of[lane] < cap_of_lane then
    turn_of[lane] = next_turn()
  end
end

-- Nothing waits in a lane any more: what comes to it in this call is behind all others, as if it came in the next.
local function leaves_line(lane)
  if waits_in(lane) > 0 then return end
  if gave[lane] then redis.call('ZREM', turns, name_of[lane]) end
  gave[lane], turn_of[lane], credit_of[lane] = false, false, 0
end

-- Of any number of names.
local function load_all(names)
  for from = 1, #names, 1000 do load_lanes({unpack(names, from, math.min(from + 999, #names))}) end
end

-- unpack takes no more than some thousand values. Without places it is all of them.
local function in_pieces(command, key, values, first, last)
  last = last or #values
  for from = first or 1, last, 1000 do
    redis.call(command, key, unpack(values, from, math.min(from + 999, last)))
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

-- Puts the touched lanes that can give now in line, in the order in which something came to them, and takes the others out.
local function line_lanes_up()
  local numbers, count_of_numbers, out = {}, 0, {}
  local gave, turn_of, head_of, tail_of, cap = gave, turn_of, head_of, tail_of, cap_of_lane
  for lane = 1, lane_count do
    local turn, did_give = turn_of[lane], gave[lane]
    if tail_of[lane] - head_of[lane] + ranked_of[lane] > 0 and weight_of[lane] > 0 and not_before[lane] == 0 and held_of[lane] < cap then
      if not (turn or did_give) then turn = next_turn() end
      if turn then
        numbers[count_of_numbers + 1], numbers[count_of_numbers + 2] = turn_text(turn), name_of[lane]
        count_of_numbers = count_of_numbers + 2
      end
      if not did_give then gave[lane] = true end
    else
      if did_give then out[#out + 1] = name_of[lane] end
      gave[lane], credit_of[lane] = false, 0
    end
    if turn then turn_of[lane] = false end
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

-- What else save() has to write (order.part.lua, operations.part.lua).
local save_items, save_operations

-- What a lane has used of its rate: nothing, once that is over.
local function pace_to_keep(lane)
  local paced = paced_of[lane] or 0
  return paced > now and paced or 0
end

-- A lane of which there is nothing but what it has used of its rate is kept as long as that counts.
local function keep_only_paced(lane, paced, is_empty)
  if is_empty and paced > 0 then
    redis.call('ZADD', KEYS[5], math.ceil(paced), '@' .. name_of[lane])
  elseif only_paced[lane] and not_before[lane] == 0 then
    redis.call('ZREM', KEYS[5], '@' .. name_of[lane])
  end
end

-- Every script's last step before its reply: turns, records and counts as they are now.
local function save()
  if save_items then save_items() end
  if save_operations then save_operations() end
  line_lanes_up()
  local records, count_of_records, gone = {}, 0, {}
  local has_more = next(parked_of) or next(behind_of) or next(paced_of)
  local head_of, tail_of, held_of = head_of, tail_of, held_of
  for lane = 1, lane_count do
    local head, tail, held, credit, parked_ones, behind_ones, paced = head_of[lane], tail_of[lane], held_of[lane], credit_of[lane], 0, 0, 0
    if has_more then parked_ones, behind_ones, paced = parked_of[lane] or 0, behind_of[lane] or 0, pace_to_keep(lane) end
    local rest = ranked_of[lane] + later_of[lane] + dead_of[lane] + not_before[lane] + parked_ones + behind_ones
    local is_empty = tail - head + held + rest == 0
    if has_more then keep_only_paced(lane, paced, is_empty) end
    if is_empty and paced == 0 then
      gone[#gone + 1] = name_of[lane]
    else
      records[count_of_records + 1] = name_of[lane]
      if rest + credit + paced == 0 then
        records[count_of_records + 2] = pack(plain_format, head, tail, bytes_of[lane], held, left_of[lane], no_rest)
      else
        records[count_of_records + 2] = pack(whole_format, head, tail, bytes_of[lane], held, left_of[lane], '+', ranked_of[lane],
          later_of[lane], dead_of[lane], not_before[lane], credit, parked_ones, behind_ones, paced)
      end
      count_of_records = count_of_records + 2
    end
  end
  in_pieces('HSET', lanes, records)
  in_pieces('HDEL', lanes, gone)
  count('turn', last_turn - turn_before)
  for i, name in ipairs(counters) do
    local by = counted[name]
    if by and by ~= 0 then note(name, format('%.0f', tonumber(known[counters_at + i] or 0) + by)) end
  end
  if #noted > 0 then redis.call('HSET', store, unpack(noted)) end
end
