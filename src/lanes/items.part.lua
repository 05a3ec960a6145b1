-- Items: how they come to wait, how they are held, what an attempt makes of them.
--
-- From its entry on an item lies at one place, waiting or held: whoever claims it or hands it back moves numbers, not its text.
-- Only for a time to wait for, or among the dead letters, it lies elsewhere.

local later, later_items, leases, items_at = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local dead, dead_order, idle = KEYS[9], KEYS[10], KEYS[11]
local ranked_prefix, held_prefix, wake = ARGV[2], ARGV[3], ARGV[4]
local match, find = string.match, string.find

local most_dead, most_dead_bytes = 10000, 67108864
-- For a letter of one lane so many of the oldest are looked at, and not more: a call may bury a thousand.
local most_looks = 500
-- Whoever waits asks again every second; who has not for this long is gone.
local idle_ms = 3000
-- From the middle of one class of priority to that of the next: room for 2^45 places on each side, and those of priorities
-- up to 100 are whole numbers still (below 2^53).
local class = 2 ^ 46
-- Places that lanes do not count through: one for each number of a turn.
local own_places = 2 ^ 47

-- Where an item stands that the lane's order alone does not say: those of a higher priority first, then the order in which they came,
-- those that are put back before all others of their priority. Below 0 it comes before the lane's plain items, above behind them.
local function rank_of(priority, number, at_head)
  return format('%.0f', -priority * class + (at_head and -number or number))
end

-- Where the words behind the priority begin, of an item of this lane that is as it came: without an expiry and a priority, and never tried.
-- To step over what is known of it takes a third of the time of a pattern that reads everything.
local function plain_end(item, name)
  local at = find(item, ' ', 1, true)
  return byte(item, at + 1) == 48 and match(item, '^ 0 0 %d+ 0 ()', at + 3 + #name)
end

local function priority_of(item, name)
  return plain_end(item, name) and 0 or tonumber(match(item, '^%S+ %d+ %S+ %d+ %d+ %d+ (%-?%d+) '))
end

local function lane_name_of(item) return match(item, '^%S+ %d+ (%S+) ') end

local function remove_items(fields) in_pieces('HDEL', items_at, fields) end

-- So many more wait in the lane, of so many bytes.
local function waits(lane, items, bytes)
  bytes_of[lane] = bytes_of[lane] + bytes
  count('waiting', items)
  count('bytes', bytes)
end

-- Places and texts of those that have lined up, not written yet, and their bytes.
local texts, used_texts, text_bytes = {}, 0, 0

-- Lets an item wait behind what waits there. Whoever reads items afterwards lets the texts be written first.
local function line_up(lane, item, priority)
  local place, size = tail_of[lane], #item
  enters(lane)
  if priority == 0 then
    tail_of[lane] = place + 1
  else
    local number = next_turn()
    place = own_places + number
    redis.call('ZADD', ranked_prefix .. name_of[lane], rank_of(priority, number, false), struct.pack('>I6', place))
    ranked_of[lane] = ranked_of[lane] + 1
  end
  texts[used_texts + 1], texts[used_texts + 2] = place_field(name_of[lane], place), item
  used_texts, text_bytes, bytes_of[lane] = used_texts + 2, text_bytes + size, bytes_of[lane] + size
end

local function write_texts()
  if used_texts == 0 then return end
  in_pieces('HSET', items_at, texts)
  count('waiting', used_texts / 2)
  count('bytes', text_bytes)
  texts, used_texts, text_bytes = {}, 0, 0
end

-- Puts held items, {id, field, name, item} each, back at the heads of their lanes, the oldest first. They stay at their places.
local function put_back(back)
  for i = 1, #back do back[i].enqueued = tonumber(match(back[i].item, '^%S+ %d+ %S+ %d+ %d+ (%d+) ')) end
  -- The one that is put back last comes first.
  table.sort(back, function(a, b)
    if a.enqueued ~= b.enqueued then return a.enqueued > b.enqueued end
    return a.id > b.id
  end)
  local names = {}
  for i = #back, 1, -1 do names[#names + 1] = back[i].name end
  load_all(names)
  for i = 1, #names do enters(loaded[names[i]]) end
  for i = 1, #back do
    local one = back[i]
    local lane = loaded[one.name]
    redis.call('ZADD', ranked_prefix .. one.name, rank_of(priority_of(one.item, one.name), next_turn(), true), sub(one.field, -6))
    ranked_of[lane] = ranked_of[lane] + 1
    waits(lane, 1, #one.item)
  end
end

-- The item after one more attempt. It was claimed in time, so it does not expire any more.
local function tried(item, claimed)
  local id, lane, attempts, first, rest = match(item, '^(%S+) %d+ (%S+) (%d+) (%d+) (.*)$')
  attempts = tonumber(attempts) + 1
  if first == '0' then first = claimed end
  return table.concat({id, '0', lane, attempts, first, rest}, ' '), attempts
end

-- As it was before its first attempt.
local function untried(item) return (string.gsub(item, '^(%S+) %d+ (%S+) %d+ %d+ ', '%1 0 %2 0 0 ', 1)) end

-- What else a letter that gives way costs (hooks.part.lua).
local loses_letter

-- Takes a letter out: answers its item, and its lane; nil when there is none.
local function take_letter(id)
  redis.call('ZREM', dead_order, id)
  local letter = redis.call('HGET', dead, id)
  if not letter then return nil end
  redis.call('HDEL', dead, id)
  local item = match(letter, '^%d+\30[^\30]*\30(.*)$')
  local lane = lane_of(lane_name_of(item))
  dead_of[lane], dead_bytes = dead_of[lane] - 1, dead_bytes - #item
  count('deadBytes', -#item)
  return item, lane
end

local function drop_letter(id)
  local item, lane = take_letter(id)
  if not item then return nil end
  left_of[lane] = left_of[lane] + 1
  count('dropped', 1)
  if loses_letter then loses_letter(lane, item) end
  return item, lane
end

-- By lane: so many of the oldest letters are others'.
local others_before = {}

-- The oldest letter of a lane, if it is among the oldest of all; else the oldest of all.
local function oldest_letter(lane)
  local seen = others_before[lane] or 0
  while dead_of[lane] > 0 and seen < most_looks do
    local ids = redis.call('ZRANGE', dead_order, seen, seen + 19)
    if #ids == 0 then break end
    for i = 1, #ids do
      if match(redis.call('HGET', dead, ids[i]) or '', '^%d+\30[^\30]*\30%S+ %d+ (%S+) ') == name_of[lane] then
        others_before[lane] = seen + i - 1
        return ids[i]
      end
    end
    seen = seen + #ids
  end
  -- It goes, so the others move up.
  others_before[lane] = math.max(0, seen - 1)
  return redis.call('ZRANGE', dead_order, 0, 0)[1]
end

-- Letters give way to one of so many bytes: the lane's own if it has half of them, or is the one whose letters are large; else the oldest.
local function make_room_for_letter(lane, bytes)
  while true do
    local letters = redis.call('HLEN', dead)
    local is_full = letters >= most_dead
    if letters == 0 or not (is_full or dead_bytes + bytes > most_dead_bytes) then return end
    local pays = 2 * dead_of[lane] >= letters or not is_full and bytes * letters > dead_bytes
    local id = pays and oldest_letter(lane) or redis.call('ZRANGE', dead_order, 0, 0)[1]
    if not id then return end
    drop_letter(id)
  end
end

local function bury(lane, id, item, reason)
  make_room_for_letter(lane, #item)
  if track then track.fails(id, reason) end
  redis.call('HSET', dead, id, format('%.0f', now) .. '\30' .. reason .. '\30' .. item)
  redis.call('ZADD', dead_order, now, id)
  dead_of[lane], dead_bytes = dead_of[lane] + 1, dead_bytes + #item
  count('deadBytes', #item)
end

-- The oldest letters are dropped, so many bytes or a little more. Answers {lane, items, bytes, …} of those that lost some; items_in says
-- what a letter counts.
local function drop_letters(bytes, most, items_in)
  local freed, said, place_of = 0, {}, {}
  for _, id in ipairs(redis.call('ZRANGE', dead_order, 0, most - 1)) do
    if freed >= bytes then break end
    local item, lane = drop_letter(id)
    if item then
      local at = place_of[lane] or #said + 1
      place_of[lane], freed = at, freed + #item
      said[at], said[at + 1], said[at + 2] = name_of[lane], (said[at + 1] or 0) + items_in(item), (said[at + 2] or 0) + #item
    end
  end
  return said
end

-- A lease as it is stored: who holds it since when, where its items lie, in the order in which they were given, and the names of their
-- lanes; nil when there is none.
local function read_lease(token)
  local text = redis.call('GET', held_prefix .. token)
  if not text then return nil end
  local holder, claimed, at = match(text, '^(%S+ %S+ (%d+)) ?()')
  local _, fields, ids, keys, is_first = cmsgpack.unpack_limit(text, 4, at - 1)
  -- One that holds nothing is spoiled, and for fsck.
  fields, ids = fields or {}, ids or {}
  local names, size = {}, #fields
  -- Behind a name are a space and six bytes.
  for i = 1, size do names[i] = sub(fields[i], 1, -8) end
  return {token = token, holder = holder, claimed = claimed, size = size, left = size, fields = fields, names = names, ids = ids, keys = keys, is_first = is_first}
end

-- The place in the lease of the item with this id; nil when it is not held under it.
local function place_in(lease, id)
  if not lease.places then
    lease.places = {}
    for i = 1, lease.size do
      if lease.ids[i] then lease.places[lease.ids[i]] = i end
    end
  end
  return lease.places[id]
end

-- The item at this place of the lease is not held under it any more.
local function release(lease, i)
  if lease.places then lease.places[lease.ids[i]] = nil end
  lease.ids[i], lease.left = false, lease.left - 1
end

-- is_first, of a tracked queue: nobody had claimed any of these before (operations.part.lua).
local function lease_text(holder, fields, ids, keys, is_first)
  if is_first then return holder .. ' ' .. cmsgpack.pack(fields, ids, keys, true) end
  return holder .. ' ' .. (is_ordered and cmsgpack.pack(fields, ids, keys) or cmsgpack.pack(fields, ids))
end

-- As it is after releases.
local function write_lease(lease)
  if lease.left == 0 then
    redis.call('DEL', held_prefix .. lease.token)
    redis.call('ZREM', leases, lease.token)
    return
  end
  local fields, ids, keys, left = {}, {}, {}, 0
  for i = 1, lease.size do
    if lease.ids[i] then
      left = left + 1
      fields[left], ids[left] = lease.fields[i], lease.ids[i]
      if is_ordered then keys[left] = lease.keys[i] end
    end
  end
  redis.call('SET', held_prefix .. lease.token, lease_text(lease.holder, fields, ids, keys))
end

-- Of any number.
local function items_of(lease, first, last)
  local items = {}
  for from = first, last, 1000 do
    for _, item in ipairs(redis.call('HMGET', items_at, unpack(lease.fields, from, math.min(from + 999, last)))) do items[#items + 1] = item end
  end
  return items
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
