#!lua flags=no-writes,allow-oom
-- Look at pieces of the table of subscriptions and of where everyone is, at one instant. Nothing is changed.
--
-- KEYS[1] group          hash  revision: the highest that was given out
-- KEYS[2] subscriptions  hash  name -> "<revision> <born> <definition>"
-- KEYS[3] changes        zset  name -> revision of its last change; removed ones too
-- KEYS[4] own            hash  "<partition> <name>" -> "<seq> <revision>"
-- KEYS[5] cursors        hash  partition -> seq of the main cursor
-- KEYS[6] removing       hash  name -> "<revision> <at ms> <kind>": its store is being taken away
-- KEYS[7] replaced       hash  name -> definitions that were replaced a short while ago
-- ARGV[1] most           pieces per answer, about
-- ARGV[2] what           of which pieces:
--   'subscriptions'  {name, its text, revision of its last change or ''}
--   'changes'        {name, revision, revision of the subscription or ''}
--   'removing'       {name}: registered all the same
--   'replaced'       {name}: not registered
--   'own'            {field, its text, revision of the subscription or ''}
--   'cursors'        {partition, seq}
-- ARGV[3] from           where to begin
--
-- Replies {'seen', revision, {where to go on or '', row…}}  revision: the highest

local group, subscriptions, changes, own = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local cursors, removing, replaced = KEYS[5], KEYS[6], KEYS[7]
local most, what, from = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local function scan(command, key, row_of)
  local page = redis.call(command, key, from, 'COUNT', most)
  local answer = {page[1] == '0' and '' or page[1]}
  for i = 1, #page[2], 2 do answer[#answer + 1] = row_of(page[2][i], page[2][i + 1]) end
  return answer
end

local function revision_of(name)
  return string.match(redis.call('HGET', subscriptions, name) or '', '^%d+') or ''
end

local function is_registered(name) return redis.call('HEXISTS', subscriptions, name) == 1 end

local sections = {
  subscriptions = function()
    return scan('HSCAN', subscriptions, function(name, text)
      return {name, text, redis.call('ZSCORE', changes, name) or ''}
    end)
  end,
  changes = function()
    return scan('ZSCAN', changes, function(name, revision) return {name, revision, revision_of(name)} end)
  end,
  removing = function()
    return scan('HSCAN', removing, function(name) return is_registered(name) and {name} or nil end)
  end,
  replaced = function()
    return scan('HSCAN', replaced, function(name) return not is_registered(name) and {name} or nil end)
  end,
  own = function()
    return scan('HSCAN', own, function(field, text)
      return {field, text, revision_of(string.match(field, '^%d+ (.*)$') or '')}
    end)
  end,
  cursors = function()
    return scan('HSCAN', cursors, function(partition, seq) return {partition, seq} end)
  end,
}

return {'seen', redis.call('HGET', group, 'revision') or '0', sections[what]()}
