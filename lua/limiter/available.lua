-- How many permits of a rate limiter could be had now. Changes nothing.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: the permits; less than 0 see there

local call, n, given_now, reads = redis.call, 0, ARGV[1], true
-- include: permits

return math.max(left, 0)
