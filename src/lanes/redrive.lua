#!lua flags=allow-oom
-- Put dead letters back in line, at the end of their lanes and as if never tried.
--
-- ARGV[6…] ids
--
-- Replies {'redriven', letters}  how many of them there were
--         {'gone'}               there is no such store; what is left of it is not touched any more

if not revision then return {'gone'} end

local redriven = 0
for i = 6, #ARGV do
  local letter, lane = take_letter(ARGV[i])
  if letter then
    local item = untried(letter)
    if track then track.begins_anew(ARGV[i], item) end
    line_up_or_behind(lane, item)
    redriven = redriven + 1
  end
end
save()
wake_idle(redriven)
return {'redriven', redriven}
