-- Gives a grant back that nobody has used.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  its permits
-- ARGV[2]  the identity of the grant, 16 bytes
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: the permits that were given back, 0 if they are known no longer; less than 0 see there

local n, given_now, reads = 0, ARGV[3], false
-- include: permits

local permits = ARGV[1] + 0
local member = struct.pack('<Bc0I4', 16, ARGV[2], permits)
local score = call('ZSCORE', permits_key, member)
if not score or score + 0 <= ms - interval then return 0 end
left = math.min(left + permits, rate)
call('ZREM', permits_key, member)
write()
return permits
