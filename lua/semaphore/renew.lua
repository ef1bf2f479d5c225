-- Renews the lease of a permit that is still held.
--
-- KEYS[1]  the permits that are held, a sorted set: their holders, scored by the millisecond at
--          which the lease ends
-- ARGV[1]  the holder
-- ARGV[2]  the lease in milliseconds
--
-- Reply: 1 if the permit is held, 0 if it was lost

-- include: lock

local set, holder, lease = KEYS[1], ARGV[1], ARGV[2] + 0
if not call('ZSCORE', set, holder) then return 0 end
local time = call('TIME')
local now = time[1] * 1000 + math.ceil(time[2] / 1000)
-- The expiry comes first: a server without free memory permits it, and refuses the ZADD.
call('PEXPIRE', set, text(math.max(call('PTTL', set), lease)))
call('ZADD', set, 'GT', text(now + lease), holder)
return 1
