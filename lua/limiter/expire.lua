-- Lets a rate limiter be forgotten after a time, with all that it has granted.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  milliseconds
--
-- Reply: 1, or 0 if there is none

local call = redis.call
if call('PEXPIRE', KEYS[1], ARGV[1]) == 0 then return 0 end
for at = 2, #KEYS do
  local life = call('PTTL', KEYS[at])
  -- The Java client writes without an expiry.
  if life == -1 or life > ARGV[1] + 0 then call('PEXPIRE', KEYS[at], ARGV[1]) end
end
return 1
