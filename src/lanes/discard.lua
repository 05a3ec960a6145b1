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
  local letter = redis.call('HGET', dead, ARGV[i])
  if letter then
    local lane = lane_of(match(letter, '^%d+\30[^\30]*\30%S+ %d+ (%S+) '))
    redis.call('HDEL', dead, ARGV[i])
    redis.call('ZREM', dead_order, ARGV[i])
    dead_of[lane], left_of[lane] = dead_of[lane] - 1, left_of[lane] + 1
    discarded = discarded + 1
  end
end
count('discarded', discarded)
save()
return {'discarded', discarded}
