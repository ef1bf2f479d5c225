-- How many permits a rate limiter of the first generation has left. Changes nothing.
--
-- KEYS     see lua/include/permits.lua
--
-- Reply: the permits; less than 0 see there

local call = redis.call
local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type')
if not config[1] or not config[2] or not config[3] then return -1 end
local rate = tonumber(config[1])
if not rate then return -3 end
local left = tonumber(call('GET', config[3] == '1' and KEYS[4] or KEYS[2]) or nil)
return math.max(left or rate, 0)
