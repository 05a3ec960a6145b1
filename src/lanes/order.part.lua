-- Order per object: of one key one item at a time can be claimed.
--
-- An item with a key is its key's owner from when it lines up until it is gone: while it waits, is held, waits to be tried again or is
-- parked. What comes of that key meanwhile lies behind it, in order, and is in no line. Whoever ends the owner lets the next one
-- line up at the end of its lane; when there is none, the key is nobody's and leaves no trace. An item without a key is never in the way.

local objects, behind, parked = KEYS[12], KEYS[13], KEYS[14]

-- Objects; and items behind one of them.
local most_parked, most_behind_parked = 10000, 10000

-- Of the objects that were looked at, by field: where the first behind the owner lies, and the next one will; false when it has no owner.
local first_behind, next_behind = {}, {}
-- Fields and items that save() writes into `behind`.
local to_lay, used_to_lay = {}, 0

local no_key = ''

-- Of an item of this lane.
local function key_of(item, name)
  local from = plain_end(item, name)
  if not from then return match(item, '^%S+ %d+ %S+ %d+ %d+ %d+ %-?%d+ (%S+) %d*\n') or no_key end
  -- Without a key the word is the last of its line.
  local stop = find(item, '[ \n]', from)
  return byte(item, stop) == 32 and sub(item, from, stop - 1) or no_key
end

local function object_field(lane, key) return name_of[lane] .. ' ' .. key end

-- Of any number.
local function load_objects(fields)
  local missing = {}
  for i = 1, #fields do
    if first_behind[fields[i]] == nil then first_behind[fields[i]], missing[#missing + 1] = false, fields[i] end
  end
  for from = 1, #missing, 1000 do
    local till = math.min(from + 999, #missing)
    for i, packed in ipairs(redis.call('HMGET', objects, unpack(missing, from, till))) do
      local field = missing[from + i - 1]
      if packed then first_behind[field], next_behind[field] = struct.unpack('>I6I6', packed) end
    end
  end
end

local function lay_behind()
  if used_to_lay == 0 then return end
  in_pieces('HSET', behind, to_lay)
  to_lay, used_to_lay = {}, 0
end

-- An item of this object comes; false for one without a key: answers whether it may line up. Else it lies behind the owner of its key.
local function admits(lane, item, field)
  if not field then return true end
  if first_behind[field] == nil then load_objects({field}) end
  if not first_behind[field] then
    first_behind[field], next_behind[field] = 0, 0
    return true
  end
  if next_behind[field] - first_behind[field] >= most_behind_parked and redis.call('HEXISTS', parked, field) == 1 then
    bury(lane, match(item, '^%S+'), item, 'its object is parked, and ' .. most_behind_parked .. ' wait behind it already')
    return false
  end
  local place, size = next_behind[field], #item
  to_lay[used_to_lay + 1], to_lay[used_to_lay + 2] = field .. ' ' .. pack('>I6', place), item
  used_to_lay, next_behind[field] = used_to_lay + 2, place + 1
  behind_of[lane], bytes_of[lane] = (behind_of[lane] or 0) + 1, bytes_of[lane] + size
  -- At once: who asks what is there asks in the middle of a call too.
  count('behind', 1)
  count('bytes', size)
  return false
end

-- An item comes to wait, or to lie behind another: answers whether it waits. One that was tried before is its key's owner still.
local function line_up_or_behind(lane, item)
  if is_ordered and match(item, '^%S+ %d+ %S+ (%d+) ') == '0' then
    local key = key_of(item, name_of[lane])
    if not admits(lane, item, key ~= no_key and object_field(lane, key)) then return false end
  end
  line_up(lane, item, priority_of(item, name_of[lane]))
  return true
end

-- Items of these keys are gone for good, or among the dead letters: the next of their objects line up, in this order. Answers how many.
local function pass_on(lanes_of_gone, keys_of_gone)
  local fields, its_lane, taken, from_lane = {}, {}, {}, {}
  for i = 1, #keys_of_gone do
    local key, lane = keys_of_gone[i], lanes_of_gone[i]
    if key ~= no_key then fields[#fields + 1], its_lane[#its_lane + 1] = object_field(lane, key), lane end
  end
  load_objects(fields)
  for i = 1, #fields do
    local field = fields[i]
    local place = first_behind[field]
    if place and place < next_behind[field] then
      taken[#taken + 1], from_lane[#from_lane + 1] = field .. ' ' .. struct.pack('>I6', place), its_lane[i]
      first_behind[field] = place + 1
    else
      first_behind[field] = false
    end
  end
  lay_behind()
  local bytes = 0
  for from = 1, #taken, 1000 do
    local till = math.min(from + 999, #taken)
    for i, item in ipairs(redis.call('HMGET', behind, unpack(taken, from, till))) do
      local lane, size = from_lane[from + i - 1], #item
      behind_of[lane], bytes_of[lane], bytes = behind_of[lane] - 1, bytes_of[lane] - size, bytes + size
      line_up(lane, item, priority_of(item, name_of[lane]))
    end
  end
  in_pieces('HDEL', behind, taken)
  count('behind', -#taken)
  count('bytes', -bytes)
  return #taken
end

-- The same lane by lane, so that who lines up first does not hang on what a claim looks at first.
local function pass_on_by_lane(lanes_of_gone, keys_of_gone)
  local at = {}
  for i = 1, #keys_of_gone do at[i] = i end
  table.sort(at, function(a, b)
    local lane_a, lane_b = lanes_of_gone[a], lanes_of_gone[b]
    if lane_a ~= lane_b then return name_of[lane_a] < name_of[lane_b] end
    return a < b
  end)
  local their_lanes, sorted = {}, {}
  for i = 1, #at do their_lanes[i], sorted[i] = lanes_of_gone[at[i]], keys_of_gone[at[i]] end
  return pass_on(their_lanes, sorted)
end

-- An item has had its last attempt: its object is parked if that is the queue's way, else it is a dead letter. Answers whether it is one,
-- and the next of its object may line up.
local function give_up(lane, id, item, reason)
  local key = parks and key_of(item, name_of[lane]) or no_key
  if key == no_key or redis.call('HLEN', parked) >= most_parked then
    bury(lane, id, item, reason)
    return true
  end
  if track then track.fails(id, reason) end
  redis.call('HSET', parked, object_field(lane, key), format('%.0f', now) .. '\30' .. reason .. '\30' .. item)
  parked_of[lane] = (parked_of[lane] or 0) + 1
  return false
end

function save_items()
  write_texts()
  lay_behind()
  local there, gone = {}, {}
  for field, first in pairs(first_behind) do
    if first then
      there[#there + 1], there[#there + 2] = field, struct.pack('>I6I6', first, next_behind[field])
    else
      gone[#gone + 1] = field
    end
  end
  in_pieces('HSET', objects, there)
  in_pieces('HDEL', objects, gone)
end
