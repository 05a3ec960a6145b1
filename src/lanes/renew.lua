#!lua flags=allow-oom
-- Renew leases: each lasts so long from now.
--
-- ARGV[6] lease_ms
-- ARGV[7…] tokens
--
-- Replies {'renewed', token…}  the tokens that hold nothing any more, or not all that they did: lapsed, settled, or never given; and
--                              '!' .. id of each item under the others that someone wants cancelled

local lease_ms, reply = tonumber(ARGV[6]), {'renewed'}
for i = 7, #ARGV do
  -- 0: a part of it was brought back.
  if tonumber(redis.call('ZSCORE', leases, ARGV[i]) or 0) > 0 then
    redis.call('ZADD', leases, now + lease_ms, ARGV[i])
    local lease = track and track.has_marks() and read_lease(ARGV[i])
    for _, id in ipairs(lease and lease.ids or {}) do
      if track.wants_cancelled(id) then reply[#reply + 1] = '!' .. id end
    end
  else
    reply[#reply + 1] = ARGV[i]
  end
end
return reply
