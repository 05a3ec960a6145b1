-- Act: give the lanes in line their turns: lease their next items, or take them for good.
--
-- What is due comes first: lapsed leases, items that waited for a time, lanes that had to wait. At most 100 pieces per claim, and as many
-- expired items.
--
-- Words  field     of the store: worker:<name>; the script has asked for it
--        token     of the lease, random; '' takes the items for good (pop)
--        n         how many items, of which 1,000 are given at most; 0 only brings back what is due
--        lease_ms  how long the lease lasts
--        worker    who claims
--        start     random, new with every start of the worker
--        name      under which the claimer hears of work if there is less than it asks for; '' does not wait
--
-- Replies {'claimed', revision, now, more, due, item…}  more: 1 when not all that is due was brought back yet, or something
--                                                    lined up too late to be given: ask again; due: ms until
--                                                    something is, -1 for nothing
--         {'paused', revision, now, more}  nothing is given until the queue is resumed; more: as above
--         {'replaced'}               another process works under this worker's name
--         {'gone'}                   there is no such store
--
-- A claim under a token that holds something answers what it holds, for a whole lease from now: it is safe to repeat.

function acts.claim()
  local lapsed_reason = 'its lease lapsed: the worker died, or held it for too long without renewing'
  local expired_reason = 'it expired before anybody had claimed it'
  local written_now = format('%.0f', now)

  -- Of one claim: how many more pieces may be brought back; how many were; what is given, its ids, where it lies and, of an ordered queue, its
  -- keys; what is to be removed; how many items have left their lanes, with how many bytes; the lanes of those that are taken for good.
  local pieces, brought_back, given, count_of_given, ids_given, fields_given, keys_given, removed, taken, taken_bytes, lanes_of_taken
  local takes_for_good
  -- Keys of items that are gone, or dead letters, and their lanes: others of their objects may be next.
  local gone, lanes_of_gone

  local function goes(lane, key) gone[#gone + 1], lanes_of_gone[#lanes_of_gone + 1] = key, lane end

  -- What a lapsed lease held is to go back in line, or goes to the dead letters.
  local function bring_back_lease(lease, back)
    -- Only the youngest, if not all: what is left goes before them in the next call.
    local first = math.max(1, lease.size - pieces + 1)
    local texts = {}
    if track then track.load({unpack(lease.ids, first, lease.size)}) end
    for at, item in ipairs(items_of(lease, first, lease.size)) do
      local i = first + at - 1
      local id, field, name = lease.ids[i], lease.fields[i], lease.names[i]
      local after, attempts = tried(item, lease.claimed)
      local lane = lane_of(name)
      held_of[lane] = held_of[lane] - 1
      if track and track.wants_cancelled(id) then
        track.gives_away(lane, id)
        if is_ordered then goes(lane, lease.keys[i]) end
        removed[#removed + 1] = field
      elseif most_attempts > 0 and attempts >= most_attempts then
        if give_up(lane, id, after, lapsed_reason) and is_ordered then goes(lane, lease.keys[i]) end
        removed[#removed + 1] = field
      else
        if track then track.retries(id, lapsed_reason) end
        back[#back + 1] = {id = id, field = field, name = name, item = after}
        texts[#texts + 1], texts[#texts + 2] = field, after
      end
      release(lease, i)
    end
    in_pieces('HSET', items_at, texts)
    count('held', -(lease.size - first + 1))
    pieces = pieces - (lease.size - first + 1)
    write_lease(lease)
    -- Its holder is not to think that it has all of it.
    if lease.left > 0 then redis.call('ZADD', leases, 0, lease.token) end
  end

  local function first_of(key) return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or math.huge) end

  local function bring_back_lapsed()
    local back, held_before = {}, in_all('held')
    for _, lapsed in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, pieces)) do
      local lease = pieces > 0 and read_lease(lapsed)
      if lease then
        bring_back_lease(lease, back)
      elseif pieces > 0 then
        -- Spoiled, and for fsck: one that holds nothing must not stop everybody's claims.
        redis.call('ZREM', leases, lapsed)
      end
    end
    put_back(back)
    -- Where there are limits others may hold more now, also for what was given up.
    brought_back = limits and held_before - in_all('held') or #back
  end

  local function bring_back_due()
    if pieces == 0 then return end
    local due = redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, pieces)
    local items = redis.call('HMGET', later_items, unpack(due))
    for i, id in ipairs(due) do
      if sub(id, 1, 1) == '@' then
        local lane = lane_of(sub(id, 2))
        -- If it waits for nothing, only its rate is to be forgotten.
        if not_before[lane] > 0 then
          not_before[lane] = 0
          enters(lane)
          brought_back = brought_back + waits_in(lane)
        end
      elseif items[i] then
        local lane = lane_of(lane_name_of(items[i]))
        later_of[lane] = later_of[lane] - 1
        if line_up_or_behind(lane, items[i]) then brought_back = brought_back + 1 end
      end
    end
    redis.call('ZREM', later, unpack(due))
    redis.call('HDEL', later_items, unpack(due))
    pieces = pieces - #due
  end

  local function give(lane, id, item, field)
    local n = count_of_given + 1
    count_of_given, given[5 + n], ids_given[n], fields_given[n] = n, item, id, field
    held_of[lane] = held_of[lane] + 1
    if is_ordered then keys_given[n] = key_of(item, name_of[lane]) end
    if takes_for_good then lanes_of_taken[n], removed[#removed + 1] = lane, field end
  end

  -- The places of the lane's items with a priority above 0, or below it, as far as they are asked for, which are not ranked any more.
  local function unrank(lane, from, to, wanted, fields)
    if ranked_of[lane] == 0 or wanted == 0 then return end
    local key = ranked_prefix .. name_of[lane]
    local places = redis.call('ZRANGEBYSCORE', key, from, to, 'LIMIT', 0, wanted)
    if #places == 0 then return end
    redis.call('ZREM', key, unpack(places))
    ranked_of[lane] = ranked_of[lane] - #places
    for i = 1, #places do fields[#fields + 1] = name_of[lane] .. ' ' .. places[i] end
  end

  -- Where the next items of one lane are, in order: those above 0, those without a priority, those below 0.
  local function next_fields(lane, wanted)
    local fields = {}
    unrank(lane, '-inf', '(0', wanted, fields)
    while #fields < wanted and head_of[lane] < tail_of[lane] do
      fields[#fields + 1] = place_field(name_of[lane], head_of[lane])
      head_of[lane] = head_of[lane] + 1
    end
    unrank(lane, '(0', '+inf', wanted - #fields, fields)
    return fields
  end

  -- As many of the lane's items as planned that have not expired, nor were cancelled. Those are gone.
  local function live_items(lane, credit)
    local live, fields = {at = 0}, next_fields(lane, planned[lane])
    while #fields > 0 do
      for i, item in ipairs(redis.call('HMGET', items_at, unpack(fields))) do
        local id, expires = match(item, '^(%S+) (%d+) ')
        bytes_of[lane], taken, taken_bytes = bytes_of[lane] - #item, taken + 1, taken_bytes + #item
        local is_cancelled = track and track.wants_cancelled(id)
        if not is_cancelled and (expires == '0' or tonumber(expires) > now) then
          live[#live + 1] = {id, item, fields[i]}
        elseif is_cancelled then
          pieces, removed[#removed + 1] = pieces - 1, fields[i]
          track.gives_away(lane, id)
          if is_ordered then goes(lane, key_of(item, name_of[lane])) end
        else
          if track then track.fails(id, expired_reason) end
          pieces, left_of[lane], removed[#removed + 1] = pieces - 1, left_of[lane] + 1, fields[i]
          count('expired', 1)
          if is_ordered then goes(lane, key_of(item, name_of[lane])) end
        end
      end
      fields = #live < planned[lane] and pieces > 0 and next_fields(lane, planned[lane] - #live) or {}
    end
    -- Nothing but expired ones so far: its turn is still to come.
    if #live == 0 then turn_of[lane], credit_of[lane] = false, credit end
    return live
  end

  -- Lane by lane: some have items with a priority, or some that may have expired.
  local function give_by_lane(order, had_credit)
    local live = {}
    for i = 1, #order do
      local lane = order[i]
      local items = live[lane] or live_items(lane, had_credit[lane] or 0)
      live[lane], items.at = items, items.at + 1
      local one = items[items.at]
      if one then
        if limits then pace_lane(lane, 1) end
        give(lane, one[1], one[2], one[3])
      end
    end
  end

  -- Where the planned items are if they are the ones at the heads of their lanes; nil when some have a priority.
  local function planned_fields(order)
    local fields, next_of = {}, {}
    for i = 1, #order do
      local lane = order[i]
      local place = next_of[lane]
      if not place then
        if ranked_of[lane] > 0 then return nil end
        place = head_of[lane]
      end
      fields[i], next_of[lane] = place_field(name_of[lane], place), place + 1
    end
    return fields, next_of
  end

  -- The planned items with one look for all lanes, unless some have a priority, or may have expired: answers whether that was all.
  local function give_at_heads(order)
    local fields, next_of = planned_fields(order)
    if not fields then return false end
    local found, ids = redis.call('HMGET', items_at, unpack(fields)), {}
    for i = 1, #order do
      local item = found[i]
      local at = find(item, ' ', 1, true)
      -- No time begins with a 0, but for none.
      if byte(item, at + 1) ~= 48 then return false end
      ids[i] = sub(item, 1, at - 1)
    end
    if track and track.wants_any_cancelled(ids) then return false end
    for lane, place in pairs(next_of) do
      if limits then pace_lane(lane, place - head_of[lane]) end
      head_of[lane] = place
    end
    local bytes, bytes_of = 0, bytes_of
    for i = 1, #order do
      local lane, item = order[i], found[i]
      bytes_of[lane], bytes = bytes_of[lane] - #item, bytes + #item
      give(lane, ids[i], item, fields[i])
    end
    taken, taken_bytes = taken + #order, taken_bytes + bytes
    return true
  end

  -- What is taken for good was held as long as it was given, so that limits count it: it is done now.
  local function let_go()
    for i = 1, count_of_given do
      local lane = lanes_of_taken[i]
      held_of[lane], left_of[lane] = held_of[lane] - 1, left_of[lane] + 1
      enters(lane)
      if is_ordered then goes(lane, keys_given[i]) end
    end
    count('out', count_of_given)
  end

  -- Leases what is given, or lets it go for good.
  local function hold_given(token, lease_ms, holder, is_first)
    remove_items(removed)
    count('waiting', -taken)
    count('bytes', -taken_bytes)
    if takes_for_good then return let_go() end
    if count_of_given == 0 then return end
    redis.call('SET', held_prefix .. token, lease_text(holder, fields_given, ids_given, keys_given, is_first))
    redis.call('ZADD', leases, now + lease_ms, token)
    count('held', count_of_given)
  end

  -- What the operations of the given are now. Answers whether all of them begin for the first time.
  local function track_given(worker, token)
    local items = {unpack(given, 6, 5 + count_of_given)}
    if not takes_for_good then return track.begins(ids_given, items, fields_given, worker, token) end
    track.pops(ids_given, items, fields_given, worker)
  end

  local function bring_back()
    local first_lapse, first_due = first_of(leases), first_of(later)
    if first_lapse <= now then
      bring_back_lapsed()
      first_lapse = first_of(leases)
    end
    if first_due <= now then
      bring_back_due()
      first_due = first_of(later)
    end
    return math.min(first_lapse, first_due)
  end

  local function give_turns(n)
    write_texts()
    while not paused and count_of_given < n and pieces > 0 do
      line_lanes_up()
      local order, had_credit, spent = plan(n - count_of_given, count_of_given)
      if #order + #spent == 0 then break end
      for i = 1, #spent do wait_for_rate(spent[i]) end
      pieces = pieces - #spent
      local is_plain = #order > 0 and give_at_heads(order)
      if #order > 0 and not is_plain then give_by_lane(order, had_credit) end
      -- All that were in line have given all they have.
      if is_plain and not limits and count_of_given < n then break end
    end
  end

  -- The reply to a claim that was answered before, and its answer lost.
  local function again(lease, lease_ms)
    redis.call('ZADD', leases, now + lease_ms, lease.token)
    return {'claimed', revision, written_now, 0, -1, unpack(items_of(lease, 1, lease.size))}
  end

  return function(at)
    local its_start, token, n, lease_ms = asked_for[argv[at]], argv[at + 1], math.min(1000, tonumber(argv[at + 2])), tonumber(argv[at + 3])
    local worker, start, name, after = argv[at + 4], argv[at + 5], argv[at + 6], at + 7
    if not revision then return {'gone'}, after, 0 end
    if its_start and its_start ~= start then return {'replaced'}, after, 0 end
    local lease = token ~= '' and read_lease(token)
    if lease then return again(lease, lease_ms), after, 0 end

    pieces, brought_back, given, count_of_given, removed, taken, taken_bytes = 100, 0, {'claimed', revision, written_now, 0, -1}, 0, {}, 0, 0
    gone, lanes_of_gone, lanes_of_taken, ids_given, fields_given, keys_given = {}, {}, {}, {}, {}, {}
    takes_for_good = token == ''
    local first = bring_back()
    local is_more = pieces <= 0
    pieces = 100
    local most, is_paced = n, false
    if limits then most, is_paced = allowed(n) end
    give_turns(most)
    -- Who has drained, or holds what it may, is out of line, whatever ends now.
    if takes_for_good or #gone > 0 then line_lanes_up() end
    hold_given(token, lease_ms, worker .. ' ' .. start .. ' ' .. written_now, track and track_given(worker, token))
    -- The leader's look has time for what is over.
    if track and n == 0 then is_more = track.sweep(500) or is_more end
    if limits then
      local more_at = pace_store(count_of_given)
      first = math.min(first, first_of(later))
      -- Whoever waits for the rate asks again when there is more of it: to wake it earlier would be in vain.
      is_paced = is_paced and count_of_given == most
      if is_paced then first = math.min(first, more_at) end
    end

    if name ~= '' and not is_paced then
      if count_of_given < n then redis.call('ZADD', idle, now, name) else redis.call('ZREM', idle, name) end
    end
    -- What was brought back and is not given here is for the others.
    local ready = brought_back - count_of_given
    local next_ones = #gone > 0 and pass_on_by_lane(lanes_of_gone, gone) or 0
    ready = ready + next_ones
    if paused then return {'paused', revision, written_now, is_more and 1 or 0}, after, ready end
    -- Nothing was given, and what is next of the objects that have lost their first has only just lined up.
    local is_late = next_ones > 0 and n > 0 and count_of_given == 0
    if is_more or pieces <= 0 or is_late then given[4] = 1 end
    if count_of_given < n or n == 0 then
      if count_of_given > 0 and not takes_for_good then first = math.min(first, now + lease_ms) end
      if first < math.huge then given[5] = math.max(0, first - now) end
    end
    return given, after, ready
  end
end
