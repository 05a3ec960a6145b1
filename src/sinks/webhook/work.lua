#!lua flags=allow-oom
-- What a dispatcher has to do in a shard at one time, in one call: what became of batches, then a claim, which seals what is due.
--
-- ARGV[9] attempts_prefix  .. subscription: list of its last attempts
-- ARGV[10…] acts           each with its own words: settle and claim as of any store of lanes; ended, after settle:
--                          how many follow, each: place in the settle before it (from 1 on), subscription, sequence, batch,
--                          what became of it ('delivered', 'failed', 'dead', 'throttled', 'back'), its events, the attempt as JSON ('' for
--                          none), why the webhook is to be disabled ('' if not)
--
-- Replies with one for each act but ended, in their order, then {'hooks', pending, name, definition, secrets, failures, failing since, …}
--         of the subscriptions of all that was claimed; pending: 1 when a webhook was disabled of which no event tells yet

local attempts_prefix = ARGV[9]
local most_attempts_kept, attempts_ms, due_per_claim = 100, 2592000000, 100

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

-- Written at once: a good attempt in the same call ends it, and a claim tells of it.
local function fails(hook)
  redis.call('HINCRBY', hook.key, 'failures', 1)
  redis.call('HSETNX', hook.key, 'failingSince', format('%.0f', now))
  hook.is_failing = true
end

local endings = {
  delivered = function(hook, sequence, _, events)
    redis.call('HDEL', hook.key, 'later:' .. sequence)
    tally(hook, 'delivered', events)
    backlog_grows(hook, -events)
    hook.changed.deliveredAt = format('%.0f', now)
    if hook.is_failing then redis.call('HDEL', hook.key, 'failures', 'failingSince') end
    hook.is_failing = false
  end,
  failed = function(hook, sequence, id)
    fails(hook)
    redis.call('HSET', hook.key, 'later:' .. sequence, id)
  end,
  dead = function(hook, sequence, _, events)
    redis.call('HDEL', hook.key, 'later:' .. sequence)
    fails(hook)
    tally(hook, 'dead', events)
    backlog_grows(hook, -events)
  end,
  throttled = function(hook) tally(hook, 'throttled', 1) end,
  back = function() end,
}

local function log_attempt(hook, attempt)
  if attempt == '' then return end
  local key = attempts_prefix .. hook.name
  if redis.call('LPUSH', key, attempt) > most_attempts_kept then redis.call('RPOP', key) end
  redis.call('PEXPIRE', key, attempts_ms)
  tally(hook, 'attempts', 1)
end

-- What was not held any more was settled by this call before, and its answer lost; or its lease had lapsed, and then the attempt is not known yet.
local function ends_late(hook, attempt)
  if attempt == '' or redis.call('LPOS', attempts_prefix .. hook.name, attempt) then return end
  log_attempt(hook, attempt)
  tally(hook, 'stale', 1)
end

-- The attempt counts for the webhook; what it says of the batch only if that was still held.
local function end_batch(at, is_stale)
  local hook, sequence, id, became = hook_of(argv[at + 1]), argv[at + 2], argv[at + 3], argv[at + 4]
  if not hook then return end
  if is_stale then return ends_late(hook, argv[at + 6]) end
  log_attempt(hook, argv[at + 6])
  endings[became](hook, sequence, id, tonumber(argv[at + 5]))
  if argv[at + 7] ~= '' then disable(hook, argv[at + 7]) end
  if became == 'delivered' or became == 'dead' then seal_if_due(open_batch(hook, sequence)) end
end

local stale_places = {}

function acts.ended()
  return function(at)
    local batches = tonumber(argv[at])
    for i = 1, batches do
      local of_batch = at + 1 + 8 * (i - 1)
      end_batch(of_batch, stale_places[tonumber(argv[of_batch])] or false)
    end
    save_batches()
    return nil, at + 1 + 8 * batches, 0
  end
end

-- What a dispatcher has to know of those whose batches it was given.
local function describe(reply, described, told)
  for i = 6, #reply do
    local name = lane_name_of(reply[i])
    if not told[name] then
      told[name] = true
      local read = redis.call('HMGET', hook_prefix .. name, 'secrets', 'failures', 'failingSince')
      described[#described + 1] = name
      described[#described + 1] = redis.call('HGET', definitions, name) or ''
      for field = 1, 3 do described[#described + 1] = read[field] or '' end
    end
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
