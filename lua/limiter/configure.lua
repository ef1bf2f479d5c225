-- Sets the rate of a rate limiter.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  `try`: only if it has none; `set`: in any case, and nothing counts as granted any more; `update`: only if it has
--          one, and nothing counts any more; `keep`: only if it has one, and what was granted still counts
-- ARGV[2]  the rate, permits in an interval
-- ARGV[3]  the interval in milliseconds
-- ARGV[4]  0: one budget for all, 1: one for each client
-- ARGV[5]  after so many milliseconds without a grant the rate is forgotten; 0: never
-- ARGV[6]  1 if Java clients count here, too; 0 if what is counted may expire
-- ARGV[7]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: 1 if it is set now, else 0

local call = redis.call
local how, rate, interval, kind, keep_alive = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'countsExpire')
local known = config[1] and config[2] and config[3]
local is_ours = known and config[4] ~= '0' and config[5] == config[1] .. ' ' .. config[2] .. ' ' .. config[3]
if how == 'try' and known then
  -- From now on Java clients count here, too.
  if ARGV[6] == '1' and call('HDEL', KEYS[1], 'countsExpire') == 1 then
    for at = 2, 3 do call('PERSIST', KEYS[at]) end
  end
  return 0
end
if (how == 'update' or how == 'keep') and not known then return 0 end

local time = call('TIME')
call('HSET', KEYS[1], 'rate', rate, 'interval', interval, 'type', kind)
if ARGV[6] == '1' then
  call('HDEL', KEYS[1], 'countsExpire')
elseif how == 'try' or how == 'set' or is_ours then
  call('HSET', KEYS[1], 'countsExpire', rate .. ' ' .. interval .. ' ' .. kind)
end
if keep_alive ~= '0' then
  call('HSET', KEYS[1], 'keepAliveTime', keep_alive)
  call('PEXPIRE', KEYS[1], keep_alive)
else
  call('HDEL', KEYS[1], 'keepAliveTime')
  call('PERSIST', KEYS[1])
end

if how == 'set' or how == 'update' then
  call('HSET', KEYS[1], 'epoch', time[1] .. string.format('%06d', time[2]))
  call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
else
  -- What is left is counted anew from what was granted and has not left yet, which lives as long as the new interval
  -- needs it.
  call('DEL', KEYS[2], KEYS[4])
  local now = ARGV[7] or time[1] * 1000000 + time[2]
  local ms = math.floor(now / 1000)
  local gone = known and tonumber(config[2]) and ms - config[2]
  for _, permits in ipairs({ KEYS[3], KEYS[5] }) do
    if gone then redis.pcall('ZREMRANGEBYSCORE', permits, '-inf', string.format('%.0f', gone)) end
    local newest = redis.pcall('ZRANGE', permits, '-1', '-1', 'WITHSCORES')[2]
    local life = call('PTTL', permits)
    if newest and life > 0 then
      local counts = string.format('%.0f', math.max(newest - ms, 0) + interval + 1000)
      if life < counts + 0 then call('PEXPIRE', permits, counts) end
      if keep_alive ~= '0' and call('PTTL', KEYS[1]) < counts + 0 then call('PEXPIRE', KEYS[1], counts) end
    end
  end
end
return 1
