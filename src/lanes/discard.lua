#!lua flags=allow-oom
-- Give dead letters up.
--
-- ARGV[6…] ids
--
-- Replies {'discarded', letters}  how many of them there were
--         {'gone'}                there is no such store; what is left of it is not touched any more

if not revision then return {'gone'} end

local discarded = 0
for i = 6, #ARGV do
  local item, lane = take_letter(ARGV[i])
  if item then
    left_of[lane] = left_of[lane] + 1
    discarded = discarded + 1
  end
end
count('discarded', discarded)
save()
return {'discarded', discarded}
