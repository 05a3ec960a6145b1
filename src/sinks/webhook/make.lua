#!lua
-- Make what a webhook needs, or bring it to a newer definition. With the first one of its shard the shard is made.
--
-- ARGV[9] name          of the subscription
-- ARGV[10] its_revision  of the definition
-- ARGV[11] its_born      revision of the subscription's creation
-- ARGV[12] definition    JSON of an object, for whoever dispatches
-- ARGV[13] max_events    of a batch
-- ARGV[14] max_wait_ms   until an open batch is due
-- ARGV[15] max_bytes     of a batch
-- ARGV[16] keep_events   beyond which the oldest batches are dropped
-- ARGV[17] sequences     how many it has
-- ARGV[18] given         secret that the definition has; '' for none. The same as in the definition before, it changes nothing: it may have
--                        been rotated since
-- ARGV[19] made          secret for a new one without
-- ARGV[20] overlap_ms    how long the secret before it goes on being used
-- ARGV[21…] applied      seq per partition up to which everything counts as taken, for a new one
--
-- Replies {'made'}, {'raised'}
--         {'outdated', revision}  it knows a newer definition, or this one, or is being removed; nothing written
--         {'left'}                one is left of an earlier subscription of that name: it has to be removed first; nothing written

local name, its_revision, its_born, definition = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12]
local max_events, max_wait_ms, max_bytes, keep_events, sequences = ARGV[13], ARGV[14], ARGV[15], ARGV[16], ARGV[17]
local given, made, overlap_ms = ARGV[18], ARGV[19], tonumber(ARGV[20])
local key = hook_prefix .. name
local known_of_it = redis.call('HMGET', key, 'defined', 'born', 'revision', 'declared')
local its_defined, lived = tonumber(known_of_it[1] or -1), tonumber(known_of_it[2])

if lived and its_born > lived then return {'left'} end
if its_defined >= its_revision or lived and (its_born < lived or not known_of_it[3]) then return {'outdated', its_defined} end

local secrets, declared = secrets_in(redis.call('HGET', definitions, name) or ''), given ~= '' and redis.sha1hex(given)
if not secrets then
  secrets = '0 ' .. (given ~= '' and given or made)
elseif declared and declared ~= known_of_it[4] then
  secrets = with_secret(secrets, given, overlap_ms)
end

-- All of its items are retried by whoever dispatches, so there is no last attempt here.
if not revision then
  redis.call('HSET', store, 'revision', 1, 'born', 1, 'defined', 1, 'attempts', 0, 'weighted', 0, 'ordered', 1, 'parks', 0)
end
redis.call('HSET', definitions, name, secrets .. '\n' .. definition)
redis.call('HSET', key, 'revision', format('%.0f', math.max(tonumber(known_of_it[3] or 0), its_revision)), 'born', ARGV[11], 'defined', ARGV[10],
  'maxEvents', max_events, 'maxWaitMs', max_wait_ms, 'maxBytes', max_bytes, 'keepEvents', keep_events, 'sequences', sequences)
if declared then redis.call('HSET', key, 'declared', declared) else redis.call('HDEL', key, 'declared') end
if lived then
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local sequence = match(field, '^open:(.*)$')
    local opened = sequence and match(redis.call('HGET', key, field), '^%d+')
    if opened then is_due_at(name .. ' ' .. sequence, opened + max_wait_ms) end
  end
  return {'raised'}
end
redis.call('HSET', tallies, name, struct.pack(tally_format, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
redis.call('HINCRBY', store, 'hooks', 1)
for i = 21, #ARGV do redis.call('HSET', key, 'applied:' .. i - 21, ARGV[i]) end
return {'made'}
