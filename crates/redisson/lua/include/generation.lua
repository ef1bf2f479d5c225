-- Tells whether clients of Redisson count a limiter in another way than the caller.
--
-- Uses   call
--        own                 the caller's generation: 1, 2 or 3
--        KEYS                as in permits.lua
--        ARGV[1]             the time in microseconds, only in tests; empty: the server's clock
-- Gives  GENERATION_BY_SIZE  the generation of a grant, by its bytes: 2 or 3; 4 for Redisson 3.16.4
--                            to 3.16.8, which counts as no generation does
--        refusal()           the reply to a caller of another generation, as in permits.lua; nil if
--                            there is none
--
-- Only grants that still count tell it, and only of one budget for all clients, where the hash does
-- not say that no client of Redisson uses the limiter. A fixed window is a value below the rate
-- that expires within the interval, without a set, while the hash does not expire.

local GENERATION_BY_SIZE = { [8] = 2, [13] = 3, [20] = 4, [21] = 3 }

local function refusal()
  local hash = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'countsExpire')
  local rate, interval = tonumber(hash[1] or nil), tonumber(hash[2] or nil)
  if not rate or not interval or hash[3] ~= '0' then return nil end
  if hash[4] ~= '0' and hash[5] == hash[1] .. ' ' .. hash[2] .. ' 0' then return nil end
  local time = call('TIME')
  local now = ARGV[1] ~= '' and ARGV[1] or time[1] * 1000000 + time[2]
  local since = string.format('(%.0f', math.floor(now / 1000) - interval)
  local member = redis.pcall('ZRANGEBYSCORE', KEYS[3], since, '+inf', 'LIMIT', '0', '1')[1]
  local expiry = call('PTTL', KEYS[2])
  local is_window = expiry >= 1 and expiry <= interval and call('EXISTS', KEYS[3]) == 0
    and call('PTTL', KEYS[1]) < 0 and (tonumber(redis.pcall('GET', KEYS[2])) or rate) < rate
  local generation = is_window and 1 or member and GENERATION_BY_SIZE[#member]
  return generation and generation ~= own and -4 - generation or nil
end
