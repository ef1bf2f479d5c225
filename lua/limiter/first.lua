-- Grants permits as Redisson's first rate limiter did (3.10): a fixed window that begins with the first grant.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the permits
--
-- Reply: 0 if they are granted, else the microseconds until the window ends; less than 0 see there

local call = redis.call
local n = ARGV[1] + 0
local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type')
if not config[1] or not config[2] or not config[3] then return -1 end
local rate, interval = tonumber(config[1]), tonumber(config[2])
if not rate or not interval or interval < 1 then return -3 end
if n > rate then return -2 end

local value_key = config[3] == '1' and KEYS[4] or KEYS[2]
local left = tonumber(call('GET', value_key) or nil)
local life = left and call('PTTL', value_key) or 0
if left and life == -1 then
  -- As a later generation keeps it.
  call('PEXPIRE', value_key, config[2])
  life = config[2] + 0
end
if not left or life <= 0 then
  call('SET', value_key, string.format('%.0f', rate - n), 'PX', config[2])
  return 0
end
if left < n then return life * 1000 end
call('SET', value_key, string.format('%.0f', left - n), 'KEEPTTL')
return 0
