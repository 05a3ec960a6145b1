-- Which operations each object has, of those with a key.
--
--   opsOf    zset  operations, each as its object and its line, "<when it was queued> <operation>": ordered by these texts
--   opsLast  hash  object -> its last operations, which are not in the zset, "<entry>\n<entry>…"; the entry of an operation that is an event's is
--                  its name, which has that time in it, and of any other its line
--
-- Most objects have a few operations, which lie in one text: a member of the zset takes three times as long, for it is put between any two of
-- the others. The text is read and written with each of them, so it is kept short. What is too much for it is handed on.
--
-- An object is called "<bytes> <object> " here, so that none begins as another one does. A time is its digits behind a letter that tells how
-- many they are: so those of more are behind those of fewer. operation.ts writes the same.

-- The values of some fields of a hash, of any number; without places, of all of these.
local function values_of(key, fields, first, last)
  first, last = first or 1, last or #fields
  if last - first < 1000 then return last >= first and redis.call('HMGET', key, unpack(fields, first, last)) or {} end
  local values = {}
  for from = first, last, 1000 do
    for _, value in ipairs(redis.call('HMGET', key, unpack(fields, from, math.min(from + 999, last)))) do values[#values + 1] = value end
  end
  return values
end

local function index_operations(base)
  local index = {}
  local last_ones, earlier_ones = base .. 'opsLast', base .. 'opsOf'
  -- About 18 of them, or 33 events; half of it is handed on at a time.
  local most_bytes = 640
  local find, gmatch = string.find, string.gmatch
  -- To be written: objects, and the entries that are added to each.
  local added, entries_of = {}, {}

  function index.object(object) return #object .. ' ' .. object .. ' ' end
  function index.line(ms, name) return string.char(96 + #ms) .. ms .. ' ' .. name end

  -- The seq of an event is its time in µs.
  local function ms_in(name) return string.match(name, '^%d+%-(%d+)%d%d%d$') end

  local function entry_of(line)
    local ms, name = string.match(line, '^%a(%d+) (.*)$')
    return ms and ms_in(name) == ms and name or line
  end

  local function line_of(entry)
    local ms = ms_in(entry)
    return ms and index.line(ms, entry) or entry
  end

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

  -- The lines of a text of entries.
  function index.lines_in(entries)
    local lines = {}
    for entry in gmatch(entries, '[^\n]+') do lines[#lines + 1] = line_of(entry) end
    return lines
  end

  -- To members of the zset.
  local function hand_on(object, entries, members)
    for _, line in ipairs(index.lines_in(entries)) do members[#members + 1], members[#members + 2] = '0', object .. line end
  end

  -- So many objects are among the words, each once, and behind them the entries that are added to each.
  function index.lay(words, at, objects)
    local known, texts, members = values_of(last_ones, words, at, at + objects - 1), {}, {}
    for i = 1, objects do
      local object, entries = words[at], words[at + objects]
      if known[i] then entries = known[i] .. '\n' .. entries end
      if #entries > most_bytes then
        -- One that is longer than half of it stays whole.
        local start = find(entries, '\n', #entries - most_bytes / 2, true) or 0
        hand_on(object, sub(entries, 1, start), members)
        entries = sub(entries, start + 1)
      end
      texts[2 * i - 1], texts[2 * i], at = object, entries, at + 1
    end
    in_pieces('HSET', last_ones, texts)
    in_pieces('ZADD', earlier_ones, members)
  end

  function index.add(object, line)
    local entries = entries_of[object]
    if not entries then
      entries = {}
      added[#added + 1], entries_of[object] = object, entries
    end
    entries[#entries + 1] = entry_of(line)
  end

  function index.save()
    local objects = #added
    for i = 1, objects do added[objects + i] = table.concat(entries_of[added[i]], '\n') end
    index.lay(added, 1, objects)
    added, entries_of = {}, {}
  end

  -- From where to where an entry stands in a text of them, with the sign before it; the text has one more before its first.
  local function place_in_text(text, entry)
    local from, to = find(text .. '\n', '\n' .. entry .. '\n', 1, true)
    return from, to and to - 1
  end

  -- These lines of these objects.
  function index.remove(objects, lines)
    local text_of, order, is_changed, out = {}, {}, {}, {}
    for i = 1, #objects do
      if not text_of[objects[i]] then order[#order + 1], text_of[objects[i]] = objects[i], '' end
    end
    for i, text in ipairs(values_of(last_ones, order)) do text_of[order[i]] = text and '\n' .. text or '' end
    for i = 1, #objects do
      local object, text = objects[i], text_of[objects[i]]
      local from, to = place_in_text(text, entry_of(lines[i]))
      if from then
        text_of[object], is_changed[object] = sub(text, 1, from - 1) .. sub(text, to + 1), true
      else
        out[#out + 1] = object .. lines[i]
      end
    end
    local texts, gone = {}, {}
    for _, object in ipairs(order) do
      if text_of[object] == '' then
        gone[#gone + 1] = object
      elseif is_changed[object] then
        texts[#texts + 1], texts[#texts + 2] = object, sub(text_of[object], 2)
      end
    end
    in_pieces('HSET', last_ones, texts)
    in_pieces('HDEL', last_ones, gone)
    in_pieces('ZREM', earlier_ones, out)
  end

  -- Whether it stands there.
  function index.has(object, line)
    return place_in_text('\n' .. (redis.call('HGET', last_ones, object) or ''), entry_of(line)) ~= nil
      or redis.call('ZSCORE', earlier_ones, object .. line) ~= false
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
    for _, one in ipairs(index.lines_in(redis.call('HGET', last_ones, object) or '')) do
      if is_less(one, line) then lines[#lines + 1] = one end
    end
    table.sort(lines, function(a, b) return is_less(b, a) end)
    return lines
  end

  -- Lines of an object that are before this one, the newest first: so many or some more, fewer only if that is all.
  function index.before(object, line, most)
    local lines, last, at = {}, last_before(object, line), 1
    local earlier = redis.call('ZRANGE', earlier_ones, '(' .. object .. line, '(' .. object, 'BYLEX', 'REV', 'LIMIT', 0, most)
    for i = 1, #earlier do
      local one = sub(earlier[i], #object + 1)
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
