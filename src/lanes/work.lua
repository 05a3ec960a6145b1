#!lua flags=allow-oom
-- What a process has to do in a store at one time, in one call: what became of items, events that enter, claims. The store is read once
-- and written once.
--
-- ARGV[6…] acts  in any order, each with its own words: see settle, accept and claim
--
-- Replies with the reply of each act, in their order

local replies, made, act_at, ready = {}, {}, 6, 0
while act_at <= #argv do
  local act = argv[act_at]
  made[act] = made[act] or acts[act]()
  local reply, next_at, of_act = made[act](act_at + 1)
  replies[#replies + 1], act_at, ready = reply, next_at, ready + of_act
end
save()
-- What was given right away is nobody else's.
if ready > 0 then wake_idle(math.min(ready, 1000)) end
return replies
