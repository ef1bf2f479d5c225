-- Gives a grant back that nobody has used.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the grant as it is kept
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: the permits that were given back, 0 if they are known no longer; less than 0 see there

local call, n, given_now, reads = redis.call, 0, ARGV[2], false
-- include: permits

local member = ARGV[1]
local permits = weight(member)
local score = call('ZSCORE', permits_key, member)
if not score or score + 0 <= ms - interval then return 0 end
left = math.min(left + permits, rate)
call('ZREM', permits_key, member)
write(interval)
return permits
