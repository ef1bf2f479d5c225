-- Returns how many permits a limiter of the first generation has left. Changes nothing.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  not used
-- ARGV[2]  not used
--
-- Reply: the number of permits; a negative number as in lua/include/permits.lua

local call, own = redis.call, 1
local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type')
if not config[1] or not config[2] or not config[3] then return -1 end
local rate = tonumber(config[1])
if not rate then return -3 end
do
  -- include: generation
end
local remaining = tonumber(call('GET', config[3] == '1' and KEYS[4] or KEYS[2]) or nil)
return math.max(remaining or rate, 0)
