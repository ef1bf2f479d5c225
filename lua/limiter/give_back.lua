-- Gives back grants that nobody has used, and ends the waiting of fair callers.
--
-- KEYS        see lua/include/permits.lua
-- ARGV[1]     now in microseconds since the epoch, only in tests; 0: the server's own clock
-- ARGV[2...]  the grants, as they are kept, or would be kept, at most 64
--
-- Reply: the permits that came back, of grants that count still; less than 0 see there

for place = 2, #ARGV do
  redis.call('ZREM', KEYS[7], ARGV[place])
  redis.call('ZREM', KEYS[9], ARGV[place])
end
if redis.call('EXISTS', KEYS[7]) == 0 then redis.call('DEL', KEYS[8]) end
local call, n, given_now, reads = redis.call, 0, ARGV[1] ~= '0' and ARGV[1], false
-- include: permits

local returned = 0
for place = 2, #ARGV do
  local member = ARGV[place]
  local score = call('ZSCORE', permits_key, member)
  if score and score + 0 > ms - interval then
    returned = returned + weight(member)
    call('ZREM', permits_key, member)
  end
end
if returned > 0 then
  left = math.min(left + returned, rate)
  write()
end
return returned
