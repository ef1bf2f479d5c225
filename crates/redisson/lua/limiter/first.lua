-- Grants permits as Redisson to 3.13.2 did: a fixed window that begins with the first grant.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  not used
-- ARGV[2]  how many permits the caller wants
-- ARGV[3]  not used
-- ARGV[4]  not used
-- ARGV[5]  when the callers' process chose its rate, in microseconds; empty: it has none
--
-- Reply: 0 if they were granted, else the microseconds until the window ends; a negative number as
--        in lua/include/permits.lua

local call, own = redis.call, 1
local requested = ARGV[2] + 0
local chosen_at = tonumber(ARGV[5])
local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'chosenAt')
if not config[1] or not config[2] or not config[3] then return -1 end
if chosen_at and (tonumber(config[4] or nil) or 0) < chosen_at then return -4 end
local rate, interval = tonumber(config[1]), tonumber(config[2])
if not rate or not interval or interval < 1 then return -3 end
if requested > rate then return -2 end

local value_key = config[3] == '1' and KEYS[4] or KEYS[2]
local remaining = tonumber(call('GET', value_key) or nil)
local expiry = remaining and call('PTTL', value_key) or 0
-- A later generation has written the value.
if expiry == -1 or expiry > interval then
  -- include: generation
end
if remaining and expiry == -1 then
  call('PEXPIRE', value_key, config[2])
  expiry = config[2] + 0
end
if not remaining or expiry <= 0 then
  call('SET', value_key, string.format('%.0f', rate - requested), 'PX', config[2])
  return 0
end
if remaining < requested then return expiry * 1000 end
call('SET', value_key, string.format('%.0f', remaining - requested), 'KEEPTTL')
return 0
