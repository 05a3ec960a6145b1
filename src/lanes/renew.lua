#!lua flags=allow-oom
-- Renew leases: each lasts so long from now.
--
-- ARGV[6] lease_ms
-- ARGV[7…] tokens
--
-- Replies {'renewed', token…}  the tokens that hold nothing any more, or not all that they did: lapsed, settled, or never given

local lease_ms, reply = tonumber(ARGV[6]), {'renewed'}
for i = 7, #ARGV do
  -- 0: a part of it was brought back.
  if tonumber(redis.call('ZSCORE', leases, ARGV[i]) or 0) > 0 then
    redis.call('ZADD', leases, now + lease_ms, ARGV[i])
  else
    reply[#reply + 1] = ARGV[i]
  end
end
return reply
