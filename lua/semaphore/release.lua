-- Releases a permit of a semaphore, or gives up a request that may have been granted without a
-- reply.
--
-- KEYS[1]  the permits that are held, a sorted set: their holders, scored by the millisecond at
--          which the lease ends
-- KEYS[2]  the latch of the request, a string: 1 if it was released, gone if it was given up before
--          it was granted
-- ARGV[1]  the holder
-- ARGV[2]  1 to give up the request, 0 to release the permit
-- ARGV[3]  the expiry of the latch in milliseconds
-- ARGV[4]  the channel on which the release is announced
--
-- Reply: 1 if this request held a permit, else 0

local call = redis.call
local set, latch, holder, expiry = KEYS[1], KEYS[2], ARGV[1], ARGV[3]
local held = call('ZSCORE', set, holder)
local latch_state = call('GET', latch)
if latch_state then return latch_state == '1' and 1 or 0 end
if not held then
  if ARGV[2] == '1' then call('SET', latch, 'gone', 'PX', expiry) end
  return 0
end

call('ZREM', set, holder)
-- The permit is released, even if the server has no memory left for the latch, or does not permit
-- the announcement.
redis.pcall('SET', latch, '1', 'PX', expiry)
redis.pcall('PUBLISH', ARGV[4], '0')
return 1
