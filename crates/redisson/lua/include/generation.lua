-- Refuses a caller if clients of Redisson count the limiter in another way. It is put into a block
-- of its own.
--
-- Uses     call
--          own      the caller's generation: 1, 2 or 3
--          KEYS     as in permits.lua
--          ARGV[1]  the time in microseconds, only in tests; empty: the server's clock
-- Returns  for such a caller, a reply as in permits.lua
--
-- Only grants that still count tell it, and only of one budget for all clients, where the hash does
-- not say that no client of Redisson uses the limiter. A fixed window is a value below the rate
-- that expires within the interval, without a set, while the hash does not expire.

local hash = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'countsExpire')
local rate, interval = tonumber(hash[1] or nil), tonumber(hash[2] or nil)
local mark = (hash[1] or '') .. ' ' .. (hash[2] or '') .. ' 0'
if rate and interval and hash[3] == '0' and (hash[4] == '0' or hash[5] ~= mark) then
  local time = call('TIME')
  local now = ARGV[1] ~= '' and ARGV[1] or time[1] * 1000000 + time[2]
  local since = string.format('(%.0f', math.floor(now / 1000) - interval)
  local member = redis.pcall('ZRANGEBYSCORE', KEYS[3], since, '+inf', 'LIMIT', '0', '1')[1]
  local expiry = call('PTTL', KEYS[2])
  local is_window = expiry >= 1 and expiry <= interval and call('EXISTS', KEYS[3]) == 0
    and call('PTTL', KEYS[1]) < 0 and (tonumber(redis.pcall('GET', KEYS[2])) or rate) < rate
  -- By the bytes of a grant; 4 for Redisson 3.16.4 to 3.16.8, which counts as no generation does.
  local generations = { [8] = 2, [13] = 3, [20] = 4, [21] = 3 }
  local generation = is_window and 1 or member and generations[#member]
  if generation and generation ~= own then return -4 - generation end
end
