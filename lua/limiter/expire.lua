-- Lets the rate of a limiter expire. Its grants still count until they have expired, in case a rate
-- is set again.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  not used
-- ARGV[2]  after how many milliseconds the rate expires
--
-- Reply: 1, or 0 if the limiter does not exist

local call = redis.call
local interval = tonumber(call('HGET', KEYS[1], 'interval') or nil) or 0
if call('PEXPIRE', KEYS[1], ARGV[2]) == 0 then return 0 end
interval = math.min(math.max(interval, 0), 315360000000)
for index = 2, 6 do
  -- Redisson sets no expiry.
  if call('PTTL', KEYS[index]) == -1 then
    call('PEXPIRE', KEYS[index], string.format('%.0f', ARGV[2] + 3 * interval + 1000))
  end
end
return 1
