-- Grants permits as Redisson's second rate limiter did: a sliding window, and whoever is denied comes back when the
-- earliest grant leaves, whether that is enough or not.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the permits
-- ARGV[2]  the grant as the third generation keeps it; 4 bytes of its identity tell it from others
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: 0 if they are granted, else the microseconds until the earliest leaves; less than 0 see there

local call, n, given_now, reads = redis.call, ARGV[1] + 0, ARGV[3], false
-- include: permits

if left >= n then
  left = left - n
  call('ZADD', permits_key, text(ms_up), string.sub(ARGV[2], 2, 5) .. struct.pack('<I4', n))
  write(true)
  return 0
end
if broken then write() end
local inside = '(' .. text(ms - interval)
local earliest = call('ZRANGEBYSCORE', permits_key, inside, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2]
return math.max(((earliest or ms_up) + interval) * 1000 - now, 1)
