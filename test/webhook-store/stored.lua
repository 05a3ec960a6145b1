#!lua flags=no-writes
-- What webhooks have besides their lanes, at one instant.
--
-- KEYS[1] deadlines
-- KEYS[2] announced
-- KEYS[3] definitions
-- KEYS[4] tallies
-- ARGV[1] hook_prefix
-- ARGV[2] open_prefix
-- ARGV[3] attempts_prefix
-- ARGV[4…] names
--
-- Replies {deadlines, announced, {fields, attempts, {sequence, open batch, …}} of each name}

local hook_prefix, open_prefix, attempts_prefix = ARGV[1], ARGV[2], ARGV[3]
local tallied = {
  'backlog', 'in', 'delivered', 'dead', 'dropped', 'batches', 'attempts', 'throttled', 'stale', 'failures', 'failingSince', 'deliveredAt', 'retrying',
}
local hooks = {}
for i = 4, #ARGV do
  local fields, open = redis.call('HGETALL', hook_prefix .. ARGV[i]), {}
  for at = 1, #fields, 2 do
    local sequence = string.match(fields[at], '^open:(.*)$')
    if sequence then
      open[#open + 1], open[#open + 2] = sequence, redis.call('LRANGE', open_prefix .. ARGV[i] .. ':' .. sequence, 0, -1)
    end
  end
  local packed = redis.call('HGET', KEYS[4], ARGV[i])
  if packed then
    fields[#fields + 1], fields[#fields + 2] = 'secrets', string.match(redis.call('HGET', KEYS[3], ARGV[i]), '^(.*)\n')
    for at, name in ipairs(tallied) do
      fields[#fields + 1], fields[#fields + 2] = name, string.format('%.0f', struct.unpack('<d', packed, 8 * at - 7))
    end
  end
  hooks[#hooks + 1] = {fields, redis.call('LRANGE', attempts_prefix .. ARGV[i], 0, -1), open}
end
return {redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES'), redis.call('SMEMBERS', KEYS[2]), hooks}
