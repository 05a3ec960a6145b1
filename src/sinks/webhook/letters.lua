#!lua flags=allow-oom
-- Put dead batches back in line, behind what waits there and as if never tried; or give them up.
--
-- ARGV[9] act     'redrive' or 'discard'
-- ARGV[10…] ids   of batches
--
-- Replies {'done', letters}  how many of them there were

local act, done, ready = ARGV[9], 0, 0
for i = 10, #ARGV do
  local letter, lane
  if revision then letter, lane = take_letter(ARGV[i]) end
  if letter then
    local item, hook = untried(letter), hook_of(name_of[lane])
    if act == 'redrive' and hook then
      tally(hook, 'backlog', events_in(item))
      if line_up_or_behind(lane, item) then ready = ready + 1 end
    else
      left_of[lane] = left_of[lane] + 1
      count('discarded', 1)
    end
    done = done + 1
  end
end
if done > 0 then
  save_hooks()
  save()
  wake_idle(ready)
end
return {'done', done}
