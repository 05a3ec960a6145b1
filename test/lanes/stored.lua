#!lua flags=no-writes
-- All of a store at one instant, as it lies there.
--
-- KEYS[1…14]  as in store.part.lua
-- ARGV[1] ranked_prefix
-- ARGV[2] held_prefix
--
-- Replies {store, turns, lanes, later, later items, leases, items, dead, objects, behind, parked, ranked, held}; ranked: places and scores of
-- each lane in the order of `lanes`; held: what each lease holds, in the order of `leases`

local ranked_prefix, held_prefix = ARGV[1], ARGV[2]
local function hash(key) return redis.call('HGETALL', key) end
local function scored(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end

local lanes, leases, ranked, held = hash(KEYS[3]), scored(KEYS[7]), {}, {}
for i = 1, #lanes, 2 do ranked[#ranked + 1] = scored(ranked_prefix .. lanes[i]) end
for i = 1, #leases, 2 do held[#held + 1] = redis.call('GET', held_prefix .. leases[i]) end
return {hash(KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1), lanes, scored(KEYS[5]), redis.call('HVALS', KEYS[6]), leases, hash(KEYS[8]), hash(KEYS[9]),
  hash(KEYS[12]), hash(KEYS[13]), hash(KEYS[14]), ranked, held}
