#!lua flags=allow-oom
-- Take events of one partition into their lanes, each exactly once: what was applied already is passed over.
--
-- ARGV[6] its_revision  of the subscription that the events were matched for
-- ARGV[7] its_born      revision of its creation
-- ARGV[8] partition     whose events these are
-- ARGV[9] first         seq of the first event
-- ARGV[10] last         seq of the last event
-- ARGV[11…] groups      per lane, in the order of their first events: lane, how many items, the items in order
--
-- Replies {'accepted', items}    how many were new
--         {'outdated', revision} the subscription has changed: match again; nothing written
--         {'gone'}               there is no such store, or one of an earlier subscription of that name; nothing written

local argv = ARGV
local its_revision, its_born, partition = tonumber(argv[6]), tonumber(argv[7]), argv[8]
local first, last = tonumber(argv[9]), tonumber(argv[10])

if not revision or its_born > born then return {'gone'} end
if its_revision < revision or its_born < born then return {'outdated', revision} end

local field = 'applied:' .. partition
local applied = tonumber(redis.call('HGET', store, field) or 0)
if applied >= last then
  redis.call('HSET', store, 'revision', format('%.0f', its_revision))
  return {'accepted', 0}
end

local groups, names, at = {}, {}, 11
while at <= #argv do
  local size = tonumber(argv[at + 1])
  groups[#groups + 1] = {name = argv[at], from = at + 2, to = at + 1 + size}
  names[#names + 1] = argv[at]
  at = at + 2 + size
end
load_all(names)

local function is_new(item) return tonumber(match(item, '^%d+%-(%d+) ')) > applied end

local accepted = 0
for _, group in ipairs(groups) do
  local lane, items, bytes = loaded[group.name], {}, 0
  for i = group.from, group.to do
    local item = argv[i]
    if applied < first or is_new(item) then
      items[#items + 1] = item
      bytes = bytes + #item
    end
  end
  in_pieces('RPUSH', lane_prefix .. lane.name, items)
  waits(lane, #items, bytes)
  lane.entered = lane.entered + #items
  accepted = accepted + #items
end
count('in', accepted)
redis.call('HSET', store, 'revision', format('%.0f', its_revision), field, argv[10])
save()
wake_idle(accepted)
return {'accepted', accepted}
