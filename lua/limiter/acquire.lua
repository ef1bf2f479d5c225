-- Grants permits of a rate limiter, if as many are left.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the permits
-- ARGV[2]  16 bytes that tell this grant from others
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: 0 if they are granted, else the microseconds until they can be; less than 0 see there

local n, given_now, reads = ARGV[1] + 0, ARGV[3], false
-- include: permits

if left >= n then
  left = left - n
  call('ZADD', permits_key, text(ms_up), struct.pack('<Bc0I4', 16, ARGV[2], n))
  write(interval)
  return 0
end

-- include: permits_wait
if changed then write() end
settle()
return math.max((leaves_at(n - left) * 1000 - now), 1)
