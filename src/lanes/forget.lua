#!lua flags=allow-oom
-- Forget the oldest ended operations of a tracked queue before their day is over, to have memory again. Their counts stay.
--
-- ARGV[6] most  at once, or a few more
--
-- Replies {'forgotten', operations}  0: there are none that have ended

local most = tonumber(ARGV[6])
return {'forgotten', track and track.forget(most) or 0}
