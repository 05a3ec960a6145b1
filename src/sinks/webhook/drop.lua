#!lua flags=allow-oom
-- Drop the oldest sealed batches of a webhook that nobody holds, to have memory again.
--
-- ARGV[9] name       of the subscription
-- ARGV[10] bytes      so many, or a little more
-- ARGV[11] most       batches at once
--
-- Replies {'dropped', batches, events, bytes}

local name, bytes, most = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11])
local hook = revision and hook_of(name)
local batches, events, freed = 0, 0, 0
while hook and batches < most and freed < bytes do
  local item = drop_batch(hook)
  if not item then break end
  batches, events, freed = batches + 1, events + events_in(item), freed + #item
end
if batches > 0 then
  save_hooks()
  save()
end
return {'dropped', batches, events, freed}
