-- Returns how many permits could be granted now. Changes nothing.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  now in microseconds since 1970, only in tests; empty: the server's clock
-- ARGV[2]  the caller's generation: 2 or 3
--
-- Reply: the number of permits; a negative number as in lua/include/permits.lua

local call, own, requested, is_read_only, chosen_at = redis.call, ARGV[2] + 0, 0, true
local test_now = ARGV[1] ~= '' and ARGV[1]
-- include: permits

return math.max(remaining, 0)
