#!lua flags=allow-oom
-- Take events of one partition into their lanes, each exactly once: what was applied already is passed over.
--
-- ARGV[6] its_revision  of the subscription that the events were matched for
-- ARGV[7] its_born      revision of its creation
-- ARGV[8] first         seq of the first event
-- ARGV[9] last          seq of the last event
-- ARGV[10…] groups      per lane, in the order of their first events: lane, how many items, the items in order
--
-- Replies {'accepted', items}    how many were new
--         {'outdated', revision} the subscription has changed: match again; nothing written
--         {'gone'}               there is no such store, or one of an earlier subscription of that name; nothing written

local argv = ARGV
local its_revision, its_born, first, last = tonumber(argv[6]), tonumber(argv[7]), tonumber(argv[8]), tonumber(argv[9])

if not revision or its_born > born then return {'gone'} end
if its_revision < revision or its_born < born then return {'outdated', revision} end

-- Up to where the partition of these events was taken.
local applied = tonumber(field_value or 0)
if applied >= last then
  redis.call('HSET', store, 'revision', format('%.0f', its_revision))
  return {'accepted', 0}
end

local groups, names, at = {}, {}, 10
while at <= #argv do
  local size = tonumber(argv[at + 1])
  groups[#groups + 1] = {name = argv[at], from = at + 2, to = at + 1 + size}
  names[#names + 1] = argv[at]
  at = at + 2 + size
end
load_all(names)

local function is_new(item) return tonumber(match(item, '^%d+%-(%d+) ')) > applied end

local accepted, places, used = 0, {}, 0
for _, group in ipairs(groups) do
  local lane, new, bytes = loaded[group.name], 0, 0
  for i = group.from, group.to do
    local item = argv[i]
    if applied < first or is_new(item) then
      places[used + 1], places[used + 2] = place_field(name_of[lane], tail_of[lane]), item
      tail_of[lane] = tail_of[lane] + 1
      new, bytes, used = new + 1, bytes + #item, used + 2
    end
  end
  waits(lane, new, bytes)
  entered_of[lane] = entered_of[lane] + new
  accepted = accepted + new
end
in_pieces('HSET', waiting, places)
count('in', accepted)
if its_revision > revision then note('revision', format('%.0f', its_revision)) end
note(field, argv[9])
save()
wake_idle(accepted)
return {'accepted', accepted}
