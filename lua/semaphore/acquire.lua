-- Acquires a permit of a semaphore if one is free.
--
-- KEYS[1]  the permits that are held, a sorted set: their holders, scored by the millisecond at
--          which the lease ends
-- KEYS[2]  the latch of this request, a string: see lua/semaphore/release.lua
-- ARGV[1]  the holder, which makes no other request
-- ARGV[2]  the lease in milliseconds
-- ARGV[3]  the number of permits
--
-- Reply: {1, 0} if the holder has a permit; {0, milliseconds until the first lease ends}; {-1, 0}
--        if the request was given up before
--
-- If the same request comes again because its reply was lost, it counts once.

-- include: lock

local set, latch, holder, lease = KEYS[1], KEYS[2], ARGV[1], ARGV[2] + 0
local held = call('ZSCORE', set, holder)
if call('GET', latch) then return { -1, 0 } end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not held then
  local from = '(' .. text(now)
  if call('ZCOUNT', set, from, '+inf') >= ARGV[3] + 0 then
    local first = call('ZRANGEBYSCORE', set, from, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
    return { 0, to_integer(first[2], now) - now }
  end
end
call('ZADD', set, text(now + 1 + lease), holder)
call('ZREMRANGEBYSCORE', set, '-inf', text(now))
if call('PTTL', set) < lease then call('PEXPIRE', set, text(lease)) end
return { 1, 0 }
