-- One event for a queue in which nothing waits, and a claim right behind it: the path of latency. The same as accept and claim do, without
-- a table or a function made; whatever else there is to do is left to them.
--
-- The words are those of the two acts, from ARGV[6] and ARGV[15] on.

if #ARGV == 22 and ARGV[6] == 'accept' and ARGV[12] == '1' and ARGV[15] == 'claim' and ARGV[17] ~= '' then
  local known = redis.call('HMGET', KEYS[1], 'revision', 'born', 'waiting', 'paused', 'weighted', ARGV[7], ARGV[16], 'in', 'held', 'ordered', 'limits', 'track')
  local id = string.match(ARGV[14], '^(%S+) 0 ')
  if known[1] == ARGV[8] and known[2] == ARGV[9] and (known[3] or '0') == '0' and known[4] ~= '1' and known[5] ~= '1' and known[10] ~= '1' and not known[11] and not known[12]
    and tonumber(known[6] or 0) < tonumber(ARGV[10]) and (known[7] or ARGV[21]) == ARGV[21] and id then
    local now, lease_ms, n = tonumber(ARGV[1]), tonumber(ARGV[19]), tonumber(ARGV[18])
    if not now then
      local time = redis.call('TIME')
      now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    local lapse = tonumber(redis.call('ZRANGE', KEYS[7], 0, 0, 'WITHSCORES')[2] or math.huge)
    local due = tonumber(redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2] or math.huge)
    local record = redis.call('HGET', KEYS[3], ARGV[13])
    if n > 0 and lapse > now and due > now and (not record or string.byte(record, 41) == 45)
      and redis.call('EXISTS', ARGV[3] .. ARGV[17]) == 0 then
      local tail, held, left = 2 ^ 40, 0, 0
      if record then
        local _
        _, tail, _, held, left = struct.unpack('<ddddd', record)
      end
      local field, written_now = ARGV[13] .. ' ' .. struct.pack('>I6', tail), string.format('%.0f', now)
      redis.call('HSET', KEYS[8], field, ARGV[14])
      redis.call('SET', ARGV[3] .. ARGV[17], ARGV[20] .. ' ' .. ARGV[21] .. ' ' .. written_now .. ' ' .. id .. ' ' .. field)
      redis.call('ZADD', KEYS[7], now + lease_ms, ARGV[17])
      redis.call('HSET', KEYS[3], ARGV[13],
        struct.pack('<ddddd', tail + 1, tail + 1, 0, held + 1, left) .. '-------------------------')
      redis.call('HSET', KEYS[1], ARGV[7], ARGV[11], 'in', string.format('%.0f', (known[8] or 0) + 1),
        'held', string.format('%.0f', (known[9] or 0) + 1))
      local in_ms = -1
      if n > 1 then in_ms = math.min(lapse, due, now + lease_ms) - now end
      if ARGV[22] ~= '' then
        if n > 1 then redis.call('ZADD', KEYS[11], now, ARGV[22]) else redis.call('ZREM', KEYS[11], ARGV[22]) end
      end
      return {{'accepted', 1}, {'claimed', tonumber(ARGV[8]), written_now, 0, in_ms, ARGV[14]}}
    end
  end
end

