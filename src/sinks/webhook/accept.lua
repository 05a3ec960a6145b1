#!lua flags=allow-oom
-- Take events of one partition, or of a replay, for several subscriptions, each exactly once: what was taken already is passed over.
--
-- ARGV[9] replay       key of the replay; '' takes events as they are routed
-- ARGV[10] partition   of all events
-- ARGV[11] most_drops  how many batches may be dropped for a subscription that keeps more than it may
-- ARGV[12…] deliveries, each: subscription, its revision, its born, seq of the first event, of the last one, "<format>\n<start>\n<end>",
--                      how many events follow, each: its sequence, "<event id> <event>"
--
-- Replies with one for each delivery, in their order:
--         {'accepted', events}    how many were new
--         {'outdated', revision}  the subscription has changed: match again; nothing of it written
--         {'gone'}                there is none, or one of an earlier subscription of that name; nothing of it written

local replay, partition, most_drops = ARGV[9], ARGV[10], tonumber(ARGV[11])
local replay_ms = 86400000

-- Up to where events were taken.
local function applied_of(hook)
  if replay ~= '' then return tonumber(redis.call('HGET', replay, partition) or 0) end
  return tonumber(redis.call('HGET', hook.key, 'applied:' .. partition) or 0)
end

local function apply(hook, last)
  if replay == '' then return redis.call('HSET', hook.key, 'applied:' .. partition, last) end
  redis.call('HSET', replay, partition, last)
  redis.call('PEXPIRE', replay, replay_ms)
end

local function drop_what_is_too_much(hook)
  local drops = 0
  while hook.backlog > hook.keep_events and drops < most_drops and drop_batch(hook) do drops = drops + 1 end
end

local function deliver(at, events)
  local hook, its_revision, its_born = hook_of(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local last, wrap = ARGV[at + 4], ARGV[at + 5]
  if not hook or its_born > hook.born then return {'gone'} end
  if its_revision < hook.revision or its_born < hook.born then return {'outdated', hook.revision} end
  if its_revision > hook.revision then
    hook.revision = its_revision
    redis.call('HSET', hook.key, 'revision', format('%.0f', its_revision))
  end
  local applied = applied_of(hook)
  if applied >= tonumber(last) then return {'accepted', 0} end

  local entered, touched = 0, {}
  for i = at + 7, at + 5 + 2 * events, 2 do
    local piece = ARGV[i + 1]
    if tonumber(match(piece, '^%d+%-(%d+) ')) > applied then
      local batch = open_batch(hook, ARGV[i])
      if not touched[batch] then touched[batch], touched[#touched + 1] = true, batch end
      gather(batch, wrap, piece)
      entered = entered + 1
    end
  end
  for i = 1, #touched do seal_if_due(touched[i]) end
  tally(hook, 'in', entered)
  backlog_grows(hook, entered)
  drop_what_is_too_much(hook)
  apply(hook, last)
  return {'accepted', entered}
end

local replies, at = {}, 12
while at <= #ARGV do
  local events = tonumber(ARGV[at + 6])
  replies[#replies + 1] = deliver(at, events)
  at = at + 7 + 2 * events
end
if revision then
  save_batches()
  save_hooks()
  save()
  if newly_ready > 0 then wake_idle(math.min(newly_ready, 1000)) end
end
return replies
