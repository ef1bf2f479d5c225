-- Makes the lease of a permit last longer, if it is still out.
--
-- KEYS[1]  the permits that are out, a sorted set: their holders by the milliseconds at which their leases end
-- ARGV[1]  the holder
-- ARGV[2]  the lease in milliseconds
--
-- Reply: 1 if it is out, 0 if it was lost

-- include: lock

local set, holder, lease = KEYS[1], ARGV[1], ARGV[2] + 0
if not call('ZSCORE', set, holder) then return 0 end
local time = call('TIME')
local now = time[1] * 1000 + math.ceil(time[2] / 1000)
-- Without memory left a server refuses what is added first, but not an expiry, and nothing behind it.
call('PEXPIRE', set, text(math.max(call('PTTL', set), lease)))
call('ZADD', set, 'GT', text(now + lease), holder)
return 1
