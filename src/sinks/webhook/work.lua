#!lua flags=allow-oom
-- What a dispatcher has to do in a shard at one time, in one call: what became of batches, then a claim, which seals what is due.
--
-- ARGV[9] attempts_prefix  .. subscription: list of its last attempts
-- ARGV[10…] acts           each with its own words: settle and claim as of any store of lanes; ended, after settle:
--                          how many follow, as many as that one settles and in their order, each: "<what became of it: delivered,
--                          failed, dead, throttled, back> <subscription> <sequence> <events>"; the attempt as JSON ('' for none); of one that
--                          failed its batch, of one that is back why its webhook is to be disabled ('' if not)
--
-- Replies with one for each act but ended, in their order, then {'hooks', pending, name, what `definitions` has of it, "<failures> <since>" or
--         '', …} of the subscriptions of all that was claimed; pending: 1 when a webhook was disabled of which no event tells yet

local attempts_prefix = ARGV[9]
-- 30 days, and an hour: so seldom the time of a log is set anew.
local most_attempts_kept, attempts_ms, log_look_ms, due_per_claim = 100, 2595600000, 3600000, 100

local function first_deadline()
  return tonumber(redis.call('ZRANGE', deadlines, 0, 0, 'WITHSCORES')[2] or math.huge)
end

local function disable(hook, why)
  local lane = lane_of(hook.name)
  redis.call('HSET', hook.key, 'disabled', why, 'disabledAt', format('%.0f', now))
  redis.call('SADD', announced, hook.name)
  redis.call('ZREM', later, '@' .. hook.name)
  not_before[lane] = forever
end

local function fails(hook)
  tally(hook, 'failures', 1)
  if tallied(hook, 'failures') == 1 then set_tally(hook, 'failingSince', now) end
end

local function heals(hook)
  if tallied(hook, 'failures') == 0 then return end
  set_tally(hook, 'failures', 0)
  set_tally(hook, 'failingSince', 0)
end

-- The batch of a sequence is not to be tried again any more.
local function leaves(hook, sequence, events)
  if tallied(hook, 'retrying') > 0 then tally(hook, 'retrying', -redis.call('HDEL', hook.key, 'later:' .. sequence)) end
  tally(hook, 'backlog', -events)
end

local endings = {
  delivered = function(hook, sequence, events)
    leaves(hook, sequence, events)
    tally(hook, 'delivered', events)
    set_tally(hook, 'deliveredAt', now)
    heals(hook)
  end,
  failed = function(hook, sequence, _, id)
    fails(hook)
    tally(hook, 'retrying', redis.call('HSET', hook.key, 'later:' .. sequence, id))
  end,
  dead = function(hook, sequence, events)
    leaves(hook, sequence, events)
    fails(hook)
    tally(hook, 'dead', events)
  end,
  throttled = function(hook) tally(hook, 'throttled', 1) end,
  back = function(hook, _, _, why)
    if why ~= '' then disable(hook, why) end
  end,
}

local function log_attempt(hook, attempt)
  if attempt == '' then return end
  local key = attempts_prefix .. hook.name
  local kept = redis.call('LPUSH', key, attempt)
  if kept > most_attempts_kept then redis.call('RPOP', key) end
  if kept == 1 or now - tallied(hook, 'loggedAt') >= log_look_ms then
    redis.call('PEXPIRE', key, attempts_ms)
    set_tally(hook, 'loggedAt', now)
  end
  tally(hook, 'attempts', 1)
end

-- What was not held any more was settled by this call before, and its answer lost; or its lease had lapsed, and then the attempt is not known yet.
local function ends_late(hook, attempt)
  if attempt == '' or redis.call('LPOS', attempts_prefix .. hook.name, attempt) then return end
  log_attempt(hook, attempt)
  tally(hook, 'stale', 1)
end

-- Of all webhooks of the shard.
local has_open

-- The attempt counts for the webhook; what it says of the batch only if that was still held.
local function end_batch(hook, became, sequence, events, attempt, about, is_stale)
  if is_stale then return ends_late(hook, attempt) end
  log_attempt(hook, attempt)
  endings[became](hook, sequence, events, about)
  if has_open and (became == 'delivered' or became == 'dead') then seal_if_due(open_batch(hook, sequence)) end
end

local stale_places = {}

function acts.ended()
  return function(at)
    local batches, became, names, sequences, events = tonumber(argv[at]), {}, {}, {}, {}
    for i = 1, batches do
      became[i], names[i], sequences[i], events[i] = match(argv[at + 3 * i - 2], '^(%S+) (%S+) (%S+) (%S+)$')
    end
    load_hooks(names)
    has_open = redis.call('EXISTS', deadlines) == 1
    for i = 1, batches do
      local hook, said_at = hooks[names[i]], at + 3 * i
      if hook then end_batch(hook, became[i], sequences[i], tonumber(events[i]), argv[said_at - 1], argv[said_at], stale_places[i]) end
    end
    save_batches()
    return nil, at + 1 + 3 * batches, 0
  end
end

-- What a dispatcher has to know of those whose batches it was given.
local function describe(reply, described, told)
  local names = {}
  for i = 6, #reply do
    local name = lane_name_of(reply[i])
    if not told[name] then told[name], names[#names + 1] = true, name end
  end
  if #names == 0 then return end
  load_hooks(names)
  local texts, at = redis.call('HMGET', definitions, unpack(names)), #described
  for i = 1, #names do
    local hook = hooks[names[i]]
    local is_failing = hook and tallied(hook, 'failures') > 0
    described[at + 1], described[at + 2] = names[i], texts[i] or ''
    described[at + 3] = is_failing and format('%.0f %.0f', tallied(hook, 'failures'), tallied(hook, 'failingSince')) or ''
    at = at + 3
  end
end

local replies, made, act_at, ready = {}, {}, 10, 0
local described, told = {'hooks', 0}, {}
while act_at <= #argv do
  local act = argv[act_at]
  made[act] = made[act] or acts[act]()
  if act == 'claim' and revision then seal_due(due_per_claim) end
  local reply, next_at, of_act = made[act](act_at + 1)
  if act == 'settle' then
    stale_places = {}
    for i = 2, #reply do stale_places[reply[i]] = true end
  elseif act == 'claim' and reply[1] == 'claimed' then
    describe(reply, described, told)
    local due = first_deadline() - now
    if due < math.huge and (reply[5] < 0 or due < reply[5]) then reply[5] = math.max(0, due) end
  end
  if reply then replies[#replies + 1] = reply end
  act_at, ready = next_at, ready + of_act
end
if revision then
  save_hooks()
  save()
  described[2] = redis.call('EXISTS', announced)
  ready = ready + newly_ready
  if ready > 0 then wake_idle(math.min(ready, 1000)) end
end
replies[#replies + 1] = described
return replies
