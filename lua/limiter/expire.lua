-- Lets a rate limiter be forgotten after a time. What it has granted counts on until it has left, in case that a rate is
-- set anew.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  milliseconds
--
-- Reply: 1, or 0 if there is none

local call = redis.call
local interval = tonumber(call('HGET', KEYS[1], 'interval') or nil) or 0
if call('PEXPIRE', KEYS[1], ARGV[1]) == 0 then return 0 end
interval = math.min(math.max(interval, 0), 315360000000)
for at = 2, 6 do
  -- The Java client writes without an expiry.
  if call('PTTL', KEYS[at]) == -1 then
    call('PEXPIRE', KEYS[at], string.format('%.0f', ARGV[1] + 3 * interval + 1000))
  end
end
return 1
