-- Takes one of several permits, if there is one left.
--
-- KEYS[1]  the permits that are out, a sorted set: their holders by the milliseconds at which their leases end
-- KEYS[2]  what became of this request, a string
-- ARGV[1]  the holder: this request, and no other
-- ARGV[2]  the lease in milliseconds
-- ARGV[3]  how many permits there are
--
-- Reply: {1, 0} if it has one now; {0, milliseconds until the first lease ends}; {-1, 0} if the request was given
-- up before it came
--
-- The same request may come twice, when the reply to the first was lost: it counts once.

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
    return { 0, whole(first[2], now) - now }
  end
end
call('ZADD', set, text(now + 1 + lease), holder)
call('ZREMRANGEBYSCORE', set, '-inf', text(now))
extend(set, lease)
return { 1, 0 }
