-- Lets the rate of a limiter expire. Its grants still count until they have expired, in case a rate
-- is set again.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  not used
-- ARGV[2]  after how many milliseconds the rate expires
--
-- Reply: 1, or 0 if the limiter does not exist

local call = redis.call
local config = call('HMGET', KEYS[1], 'interval', 'type', 'epoch')
if call('PEXPIRE', KEYS[1], ARGV[2]) == 0 then return 0 end
local interval = math.min(math.max(tonumber(config[1] or nil) or 0, 0), 315360000000)
for index = 2, 6 do
  -- Redisson sets no expiry.
  if call('PTTL', KEYS[index]) == -1 then
    call('PEXPIRE', KEYS[index], string.format('%.0f', ARGV[2] + 3 * interval + 1000))
  end
end
-- When the rate has expired, nothing else tells how long its grants count.
local grants = string.format('%.0f %s %s', interval, config[2] or '', config[3] or '')
call('SET', KEYS[10], grants, 'PX', string.format('%.0f', ARGV[2] + interval))
return 1
