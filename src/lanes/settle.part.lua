-- Act: say what became of held items. Whoever does not hold an item any more changes nothing.
--
-- Words  groups  how many follow, each: token, outcome, how many, of a tracked queue the list for which outputs and reasons were looked through
--                (redact.ts), then the items' ids with what the outcome needs:
--                'ack'                    done: id
--                'all'                    so many, all that the lease holds, are done: once the id of the first, nothing more
--                'outputs'                the same of a tracked queue: the first one's id, then the outputs in the order in which they were given
--                'done'                   of a tracked queue: id, output
--                'back'                   never begun, goes to the head of its lane with one attempt less: id
--                'retry'                  id, ms from now, reason; after its last attempt it is a dead letter
--                'dead'                   id, reason
--                'throttle'               as 'back', and its whole lane waits: id, ms from now
--
-- Replies {'settled', place…}  the places, counted from 1 over all ids, of those that were not held under their token: stale
--         {'gone'}             there is no such store

-- What work.lua can do: each makes its functions when it is first asked for.
local acts, argv = {}, ARGV

function acts.settle()
  -- Of a group before its items, and of each of them.
  local words_before = {all = 5, outputs = 5, ack = 4, done = 4, back = 4, retry = 4, dead = 4, throttle = 4}
  local words_of = {all = 0, outputs = 1, ack = 1, done = 2, back = 1, retry = 3, dead = 2, throttle = 2}

  -- Keys of items that are gone, or dead letters, and their lanes: others of their objects may be next.
  local gone, lanes_of_gone

  local function goes(lane, key) gone[#gone + 1], lanes_of_gone[#lanes_of_gone + 1] = key, lane end

  -- Answers whether someone wants the item at this place of a lease cancelled: then it is gone.
  local function is_cancelled(lane, id, lease, i)
    if not (track and track.wants_cancelled(id)) then return false end
    redis.call('HDEL', items_at, lease.fields[i])
    track.gives_away(lane, id)
    if is_ordered then goes(lane, lease.keys[i]) end
    return true
  end

  -- Ends an attempt of the item at this place of a lease; without ms it was the last. Answers whether it waits at once.
  local function fail(lane, id, lease, i, item, ms, reason)
    local after, attempts = tried(item, lease.claimed)
    redis.call('HDEL', items_at, lease.fields[i])
    if not ms or most_attempts > 0 and attempts >= most_attempts then
      if give_up(lane, id, after, reason) and is_ordered then goes(lane, lease.keys[i]) end
    elseif ms <= 0 then
      if track then track.retries(id, reason) end
      line_up(lane, after, priority_of(after, name_of[lane]))
      return 1
    else
      if track then track.retries(id, reason) end
      redis.call('HSET', later_items, id, after)
      redis.call('ZADD', later, now + ms, id)
      later_of[lane] = later_of[lane] + 1
    end
    return 0
  end

  -- What becomes of an item that is not done: answers how many wait at once.
  local function become(outcome, lease, i, first, back)
    local lane, item = loaded[lease.names[i]], redis.call('HGET', items_at, lease.fields[i])
    local id = argv[first]
    if outcome == 'throttle' then wait_until(lane, now + tonumber(argv[first + 1])) end
    if is_cancelled(lane, id, lease, i) then return 0 end
    if outcome == 'retry' then return fail(lane, id, lease, i, item, tonumber(argv[first + 1]), argv[first + 2]) end
    if outcome == 'dead' then return fail(lane, id, lease, i, item, nil, argv[first + 1]) end
    if track then track.returns(id) end
    back[#back + 1] = {id = id, field = lease.fields[i], name = lease.names[i], item = item}
    if outcome == 'throttle' then return 0 end
    enters(lane)
    return 1
  end

  -- The lease of this token, read once.
  local leases_read = {}
  local function lease_of(token)
    if leases_read[token] == nil then leases_read[token] = read_lease(token) or false end
    return leases_read[token]
  end

  -- Which items of a lease a group speaks of: where in argv each is spoken of, with its place in the lease. The others are stale, and so is
  -- one that was spoken of before.
  local function spoken_of(lease, at, size, step, place, stale)
    local said_at, of_lease, names, found = {}, {}, {}, 0
    for n = 1, size do
      local first = at + (n - 1) * step
      local i = lease and place_in(lease, argv[first])
      if i then
        found = found + 1
        said_at[found], of_lease[found], names[found] = first, i, lease.names[i]
        release(lease, i)
      else
        stale[#stale + 1] = place + n
      end
    end
    return said_at, of_lease, names
  end

  -- All of a lease is done. One that holds less has lapsed: what is left of it is about to be given again. One that holds others was given by a
  -- claim that came late, to nobody. Answers how many wait at once.
  local function settle_whole(lease, first, size, place, stale, outputs, keeps)
    if not lease or lease.size ~= size or lease.left ~= size or lease.ids[1] ~= first then
      for n = 1, size do stale[#stale + 1] = place + n end
      return 0
    end
    local names, ids, keys = lease.names, lease.ids, lease.keys
    load_all(names)
    if not keeps then track.withhold(ids, outputs) end
    if track then track.done(ids, outputs, lease) end
    for i = 1, size do
      local lane = loaded[names[i]]
      held_of[lane], left_of[lane] = held_of[lane] - 1, left_of[lane] + 1
      if limits and not gave[lane] and gives(lane) then enters(lane) end
      if is_ordered then goes(lane, keys[i]) end
    end
    lease.ids, lease.places, lease.left = {}, {}, 0
    remove_items(lease.fields)
    count('out', size)
    count('held', -size)
    return limits and size or 0
  end

  -- Answers where the next group is, and how many items wait at once.
  local function settle_group(at, place, stale, back)
    local lease, outcome, size = lease_of(argv[at]), argv[at + 1], tonumber(argv[at + 2])
    local step, from, done, ready = words_of[outcome], at + words_before[outcome], {}, 0
    local after, place_after, keeps = from + size * step, place + size, not track or track.keeps(argv[at + 3])
    if outcome == 'all' then return after, place_after, settle_whole(lease, argv[at + 4], size, place, stale, {}, true) end
    if outcome == 'outputs' then
      return after, place_after, settle_whole(lease, argv[at + 4], size, place, stale, {unpack(argv, from, after - 1)}, keeps)
    end
    local is_done = outcome == 'ack' or outcome == 'done'
    local said_at, of_lease, names = spoken_of(lease, from, size, step, place, stale)
    load_all(names)
    if track then
      local ids, outputs = {}, {}
      for n = 1, #names do ids[n], outputs[n] = argv[said_at[n]], outcome == 'done' and argv[said_at[n] + 1] end
      if not keeps then track.withhold(ids, outputs) end
      if is_done then track.done(ids, outputs) else track.load(ids) end
    end
    for n = 1, #names do
      local lane = loaded[names[n]]
      held_of[lane] = held_of[lane] - 1
      if limits and not gave[lane] and gives(lane) then enters(lane) end
      if is_done then
        done[n], left_of[lane] = lease.fields[of_lease[n]], left_of[lane] + 1
        if is_ordered then goes(lane, lease.keys[of_lease[n]]) end
      else
        ready = ready + become(outcome, lease, of_lease[n], said_at[n], back)
      end
    end
    if is_done then
      remove_items(done)
      count('out', #names)
    end
    count('held', -#names)
    -- Others may hold more now.
    if limits then ready = ready + #names end
    return after, place_after, ready
  end

  return function(at)
    local groups, place, ready, stale, back = tonumber(argv[at]), 0, 0, {'settled'}, {}
    local next_at, of_group = at + 1, 0
    gone, lanes_of_gone = {}, {}
    for _ = 1, groups do
      if revision then
        next_at, place, of_group = settle_group(next_at, place, stale, back)
        ready = ready + of_group
      else
        next_at = next_at + words_before[argv[next_at + 1]] + argv[next_at + 2] * words_of[argv[next_at + 1]]
      end
    end
    if not revision then return {'gone'}, next_at, 0 end
    put_back(back)
    if is_ordered then ready = ready + pass_on(lanes_of_gone, gone) end
    for token, lease in pairs(leases_read) do
      if lease and lease.left < lease.size then write_lease(lease) end
      leases_read[token] = nil
    end
    return stale, next_at, ready
  end
end
