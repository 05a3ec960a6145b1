#!lua flags=allow-oom
-- Renew leases: each lasts so long from now.
--
-- ARGV[6] lease_ms
-- ARGV[7…] tokens
--
-- Replies {'renewed', token…}  the tokens that hold nothing any more: lapsed, settled, or never given

local lease_ms, reply = tonumber(ARGV[6]), {'renewed'}
for i = 7, #ARGV do
  if redis.call('ZSCORE', leases, ARGV[i]) then
    redis.call('ZADD', leases, now + lease_ms, ARGV[i])
  else
    reply[#reply + 1] = ARGV[i]
  end
end
return reply
