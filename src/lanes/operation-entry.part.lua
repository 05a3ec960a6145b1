-- Operations that begin: what is kept of their items, and their places in the index.
--
-- What may hold a secret is shown only as far as somebody has looked through it, and no more than most_input of it.

-- operation_of is of the records (operations.part.lua).
local function enter_operations(kept_items, index, operation_of, mode, hides)
  local match = string.match
  local most_input = 16384
  -- `changes`: values that were written of items.
  local entry = {changes = 0}
  -- Items that have entered, and are to be written before anybody looks.
  local entering = {}
  -- What was said of the inputs: by item, where it is another than its data; nil when nobody has said anything, and then what may hold a
  -- secret is not shown. And of the objects: where among the words they are, and how many.
  local words, said, objects_at, count_of_objects = ARGV, nil, nil, nil

  function entry.without_data(item) return match(item, '^[^\n]*\n[^\n]*\n') end

  -- An item with what is shown of its data.
  local function shown(item)
    local instead = said and said[match(item, '^%S+')]
    if instead then return entry.without_data(item) .. instead end
    if not said and hides ~= '0' then return entry.without_data(item) end
    if #item <= most_input then return item end
    local rest = entry.without_data(item)
    return #item - #rest <= most_input and item or rest
  end

  function entry.lay()
    if #entering == 0 then return end
    local items = {}
    for i, item in ipairs(entering) do
      local name = operation_of(match(item, '^%S+'))
      local object, line = index.place_of(item, name)
      if object ~= '' then index.add(object, line) end
      items[2 * i - 1], items[2 * i] = name, shown(item)
    end
    entering, entry.changes = {}, entry.changes + #items
    in_pieces('HSET', kept_items, items)
    index.save()
  end

  function entry.inputs(inputs, at, objects)
    entry.lay()
    said, objects_at, count_of_objects = inputs, at, objects
  end

  -- An item comes into the queue: its operation begins.
  function entry.enters(item)
    if mode ~= 'ending' then entering[#entering + 1] = item end
  end

  -- Whether these items, every second one of the words, are kept as they are.
  local function are_whole(first, last)
    if next(said) then return false end
    for at = first, last, 2 do
      if #words[at] > most_input then return false end
    end
    return true
  end

  -- All of which something was said (entry.inputs) come in, and none of them has before. They are among the words, each behind the name of its
  -- operation: to find out what it is called, and where it stands in the index, takes a third of all its time here.
  function entry.all_enter(first, last)
    if mode == 'ending' then return end
    if are_whole(first + 1, last) then
      in_pieces('HSET', kept_items, words, first, last)
    else
      local items = {}
      for at = first, last, 2 do items[#items + 1], items[#items + 2] = words[at], shown(words[at + 1]) end
      in_pieces('HSET', kept_items, items)
    end
    index.lay(words, objects_at, count_of_objects)
    entry.changes = entry.changes + last - first + 1
  end

  return entry
end
