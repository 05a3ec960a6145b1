#!lua flags=allow-oom
-- Take events of one partition, or of a replay, for several subscriptions, each exactly once: what was taken already is passed over.
--
-- ARGV[9] replay       key of the replay; '' takes events as they are routed
-- ARGV[10] partition   of all events
-- ARGV[11] most_drops  how many batches may be dropped for a subscription that keeps more than it may
-- ARGV[12…] deliveries, each: subscription, its revision, its born, seq of the last event, "<format>\n<start>\n<end>", how many events follow,
--                      each: its sequence, "<event id> <event>"
--
-- Replies with one for each delivery, in their order:
--         {'accepted', events, dropped}  how many were new; how many gave way because it keeps no more
--         {'outdated', revision}  the subscription has changed: match again; nothing of it written
--         {'gone'}                there is none, or one of an earlier subscription of that name; nothing of it written

local replay, partition, most_drops = ARGV[9], ARGV[10], tonumber(ARGV[11])
local replay_ms = 86400000

-- Up to where events were taken.
local function applied_of(hook)
  return tonumber((replay == '' and hook.asked or replay ~= '' and redis.call('HGET', replay, partition)) or 0)
end

-- Written when the events are: a call that ends with an error takes them again.
local taken = {}
local function apply()
  for _, one in ipairs(taken) do
    if replay == '' then
      redis.call('HSET', one.key, 'applied:' .. partition, one.last)
    else
      redis.call('HSET', replay, partition, one.last)
      redis.call('PEXPIRE', replay, replay_ms)
    end
  end
end

-- Answers how many events.
local function drop_what_is_too_much(hook)
  local drops, before = 0, tallied(hook, 'dropped')
  while tallied(hook, 'backlog') > hook.keep_events and drops < most_drops and drop_batch(hook) do drops = drops + 1 end
  return tallied(hook, 'dropped') - before
end

local function deliver(at, events)
  local hook, its_revision, its_born = hook_of(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local last, wrap = ARGV[at + 3], ARGV[at + 4]
  if not hook or not define(hook, 'applied:' .. partition) or its_born > hook.born then return {'gone'} end
  if its_revision < hook.revision or its_born < hook.born then return {'outdated', hook.revision} end
  if its_revision > hook.revision then
    hook.revision = its_revision
    redis.call('HSET', hook.key, 'revision', format('%.0f', its_revision))
  end
  local applied = applied_of(hook)
  if applied >= tonumber(last) then return {'accepted', 0, 0} end

  local entered, touched = 0, {}
  for i = at + 6, at + 4 + 2 * events, 2 do
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
  tally(hook, 'backlog', entered)
  local dropped = drop_what_is_too_much(hook)
  taken[#taken + 1] = {key = hook.key, last = last}
  return {'accepted', entered, dropped}
end

local starts, names, at = {}, {}, 12
while at <= #ARGV do
  starts[#starts + 1], names[#names + 1] = at, ARGV[at]
  at = at + 6 + 2 * ARGV[at + 5]
end
load_hooks(names)
local replies = {}
for i = 1, #starts do replies[i] = deliver(starts[i], tonumber(ARGV[starts[i] + 5])) end
if revision then
  save_batches()
  save_hooks()
  save()
  apply()
  if newly_ready > 0 then wake_idle(math.min(newly_ready, 1000)) end
end
return replies
