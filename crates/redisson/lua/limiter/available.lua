-- Returns how many permits could be granted now. Changes nothing.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  now in microseconds since 1970, only in tests; empty: the server's clock
--
-- Reply: the number of permits; a negative number as in lua/include/permits.lua

local call, requested, is_read_only, chosen_at = redis.call, 0, true
local test_now = ARGV[1] ~= '' and ARGV[1]
-- include: permits

return math.max(remaining, 0)
