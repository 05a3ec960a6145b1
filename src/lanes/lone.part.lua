-- One event into a queue in which nothing waits, and to the claim that comes with it: the path of latency (lone.lua, next.lua).
--
-- The same as the acts accept and claim of work.lua, one behind the other; whatever else there is to do is left to them. Few keys and
-- arguments, no table made: that is half of the time.
--
-- KEYS[1] store     hash  see store.part.lua
-- KEYS[2] lanes     hash  lane -> its record
-- KEYS[3] later     zset  item id, or '@' .. lane, -> ms until which it waits
-- KEYS[4] leases    zset  token -> ms at which it lapses
-- KEYS[5] items_at  hash  lane .. ' ' .. place (6 bytes) -> item
-- KEYS[6] idle      zset  who waits for work -> ms since when
-- ARGV[1] words     with spaces between them: now (ms; '-' means the server's clock), held_prefix; of accept its field, revision and born;
--                   of claim its field, token, n, lease_ms, worker, start and name ('-' does not wait)
-- ARGV[2] lane

local store, lanes, later, leases, items_at, idle = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local words, lane = ARGV[1], ARGV[2]
local now, held_prefix, applied, its_revision, its_born, fence, token, n, lease_ms, worker, start, name = string.match(words,
  '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')

-- Answers the replies of both acts, or nothing, and then nothing was written.
local function lend(id, seq, item)
  local known = redis.call('HMGET', store, 'revision', 'born', 'waiting', 'paused', 'weighted', applied, fence, 'in', 'held', 'ordered', 'limits', 'track')
  if known[1] ~= its_revision or known[2] ~= its_born or (known[3] or '0') ~= '0' or known[4] == '1' or known[5] == '1'
    or tonumber(known[6] or 0) >= tonumber(seq) or (known[7] or start) ~= start or known[10] == '1' or known[11] or known[12] then
    return nil
  end

  now, n = tonumber(now), tonumber(n)
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  -- Without anything held there is no lease.
  local lapse = (known[9] or '0') == '0' and math.huge or tonumber(redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2] or math.huge)
  local due = tonumber(redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or math.huge)
  local record = redis.call('HGET', lanes, lane)
  -- One that has more than the plain numbers is not for here.
  if lapse <= now or due <= now or record and string.byte(record, 41) ~= 45 then return nil end

  local tail, held, left = 2 ^ 40, 0, 0
  if record then
    local _
    _, tail, _, held, left = struct.unpack('<ddddd', record)
  end
  local field, written_now = lane .. ' ' .. struct.pack('>I6', tail), string.format('%.0f', now)
  -- A token that holds something was answered before.
  local lease = worker .. ' ' .. start .. ' ' .. written_now .. ' ' .. cmsgpack.pack({field}, {id})
  if not redis.call('SET', held_prefix .. token, lease, 'NX') then return nil end
  redis.call('HSET', items_at, field, item)
  redis.call('ZADD', leases, now + lease_ms, token)
  redis.call('HSET', lanes, lane, struct.pack('<ddddd', tail + 1, tail + 1, 0, held + 1, left) .. '-------------------------')
  redis.call('HSET', store, applied, seq, 'in', string.format('%.0f', (known[8] or 0) + 1), 'held', string.format('%.0f', (known[9] or 0) + 1))
  local in_ms = -1
  if n > 1 then in_ms = math.min(lapse, due, now + lease_ms) - now end
  if name ~= '-' then
    if n > 1 then redis.call('ZADD', idle, now, name) else redis.call('ZREM', idle, name) end
  end
  return {{'accepted', 1}, {'claimed', tonumber(its_revision), written_now, 0, in_ms, item}}
end
