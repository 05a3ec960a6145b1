-- Which operations each object has, of those with a key.
--
--   opsLast  hash  object -> its last operations, "<when it was queued> <operation>\n" each
--   opsOf    zset  those before them, each as its object and such a line: ordered by these texts
--
-- Most objects have a few operations, which lie in one text: a member of the zset takes three times as long, for it is put between any two of
-- the others. What is too much for the text is handed on.
--
-- An object is called "<bytes> <object> " here, so that none begins as another one does. A time is its digits behind a letter that tells how
-- many they are: so those of more are behind those of fewer. operation.ts writes the same.

-- The values of some fields of a hash, of any number.
local function values_of(key, fields)
  if #fields <= 1000 then return #fields > 0 and redis.call('HMGET', key, unpack(fields)) or {} end
  local values = {}
  for from = 1, #fields, 1000 do
    for _, value in ipairs(redis.call('HMGET', key, unpack(fields, from, math.min(from + 999, #fields)))) do values[#values + 1] = value end
  end
  return values
end

local function index_operations(base)
  local index = {}
  local last_ones, earlier_ones = base .. 'opsLast', base .. 'opsOf'
  -- About 18 of them; half of it is handed on at a time.
  local most_bytes = 640
  local find, gmatch = string.find, string.gmatch
  -- To be written: objects, what is added to each, members of the zset.
  local added, lines_of, members = {}, {}, {}

  function index.object(object) return #object .. ' ' .. object .. ' ' end
  function index.line(ms, name) return string.char(96 + #ms) .. ms .. ' ' .. name .. '\n' end

  -- The key in the header of an item; nil without one.
  local function key_in(item, header_at)
    local start = find(item, '","key":"', header_at, true)
    if not start or start > find(item, '\n', header_at, true) then return nil end
    local key = sub(item, start + 9, find(item, '"', start + 9, true) - 1)
    if not find(key, '\\', 1, true) then return key end
    local is_read, header = pcall(cjson.decode, string.match(item, '^[^\n]*', header_at))
    return is_read and type(header.key) == 'string' and header.key or nil
  end

  -- The object of an item, and the line of its operation; '' without a key. Its tenant is its lane.
  function index.place_of(item, name)
    local lane, ms, header_at = string.match(item, '^%S+ %d+ (%S+) %d+ %d+ (%d+) [^\n]*\n()')
    local key = key_in(item, header_at)
    if not key then return '', '' end
    return index.object(lane .. '/' .. key), index.line(ms, name)
  end

  local function hand_on(object, lines)
    for line in gmatch(lines, '([^\n]+)\n') do members[#members + 1], members[#members + 2] = '0', object .. line end
  end

  function index.add(object, line)
    local lines = lines_of[object]
    if not lines then
      added[#added + 1], lines_of[object] = object, line
    elseif #lines > most_bytes then
      hand_on(object, lines)
      lines_of[object] = line
    else
      lines_of[object] = lines .. line
    end
  end

  function index.save()
    local known, texts = values_of(last_ones, added), {}
    for i = 1, #added do
      local object = added[i]
      local lines = known[i] and known[i] .. lines_of[object] or lines_of[object]
      if #lines > most_bytes then
        local at = find(lines, '\n', #lines - most_bytes / 2, true)
        hand_on(object, sub(lines, 1, at))
        lines = sub(lines, at + 1)
      end
      texts[2 * i - 1], texts[2 * i] = object, lines
    end
    in_pieces('HSET', last_ones, texts)
    in_pieces('ZADD', earlier_ones, members)
    added, lines_of, members = {}, {}, {}
  end

  -- These lines of these objects.
  function index.remove(objects, lines)
    local text_of, order, is_changed, out = {}, {}, {}, {}
    for i = 1, #objects do
      if not text_of[objects[i]] then order[#order + 1], text_of[objects[i]] = objects[i], '' end
    end
    for i, text in ipairs(values_of(last_ones, order)) do text_of[order[i]] = text or '' end
    for i = 1, #objects do
      local object, text = objects[i], text_of[objects[i]]
      local from, to = find(text, lines[i], 1, true)
      if from then
        text_of[object], is_changed[object] = sub(text, 1, from - 1) .. sub(text, to + 1), true
      else
        out[#out + 1] = object .. sub(lines[i], 1, -2)
      end
    end
    local texts, gone = {}, {}
    for _, object in ipairs(order) do
      if text_of[object] == '' then
        gone[#gone + 1] = object
      elseif is_changed[object] then
        texts[#texts + 1], texts[#texts + 2] = object, text_of[object]
      end
    end
    in_pieces('HSET', last_ones, texts)
    in_pieces('HDEL', last_ones, gone)
    in_pieces('ZREM', earlier_ones, out)
  end

  -- Whether it stands there.
  function index.has(object, line)
    return find(redis.call('HGET', last_ones, object) or '', line, 1, true) ~= nil
      or redis.call('ZSCORE', earlier_ones, object .. sub(line, 1, -2)) ~= false
  end

  -- As Redis orders texts; Lua would ask the locale.
  local function is_less(a, b)
    for i = 1, math.min(#a, #b) do
      local byte_of_a, byte_of_b = byte(a, i), byte(b, i)
      if byte_of_a ~= byte_of_b then return byte_of_a < byte_of_b end
    end
    return #a < #b
  end

  local function last_before(object, line)
    local lines = {}
    for one in gmatch(redis.call('HGET', last_ones, object) or '', '[^\n]+\n') do
      if is_less(one, line) then lines[#lines + 1] = one end
    end
    table.sort(lines, function(a, b) return is_less(b, a) end)
    return lines
  end

  -- Lines of an object that are before this one, the newest first: so many or some more, fewer only if that is all.
  function index.before(object, line, most)
    local lines, last, at = {}, last_before(object, line), 1
    local earlier = redis.call('ZRANGE', earlier_ones, '(' .. object .. sub(line, 1, -2), '(' .. object, 'BYLEX', 'REV', 'LIMIT', 0, most)
    for i = 1, #earlier do
      local one = sub(earlier[i], #object + 1) .. '\n'
      while last[at] and is_less(one, last[at]) do
        lines[#lines + 1], at = last[at], at + 1
      end
      lines[#lines + 1] = one
    end
    if #earlier < most then
      for i = at, #last do lines[#lines + 1] = last[i] end
    end
    return lines
  end

  return index
end
