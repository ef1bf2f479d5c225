-- Grants permits of a rate limiter, if as many are left.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the permits
-- ARGV[2]  the grant as it is kept: a member of the set with these permits and an identity of 16 bytes
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: 0 if they are granted, else the microseconds until they can be; less than 0 see there

local call, n, given_now, reads = redis.call, ARGV[1] + 0, ARGV[3], false

-- The common way: the state is whole, or there is none yet, and at most one grant has left. It asks only what it needs.
--
-- The expiry is left alone as long as no grant leaves: then all that are granted follow within an interval of the one
-- that has set it, and it was set for as long in advance. When one leaves, it is looked after.
local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime')
local rate, interval = tonumber(config[1] or nil), tonumber(config[2] or nil)
local value_key, permits_key, is_known = KEYS[2], KEYS[3], config[3] == '0'
if rate and interval and config[3] == '1' then
  value_key, permits_key = KEYS[4], KEYS[5]
  local epoch = call('HGET', KEYS[1], 'epoch')
  is_known = call('GET', KEYS[6]) == (epoch or '') .. ' ' .. config[1] .. ' ' .. config[2]
end
if is_known and not config[4] and rate and interval and n <= rate and interval >= 1 then
  local value = call('GET', value_key)
  local oldest = call('ZRANGE', permits_key, '0', '0', 'WITHSCORES')
  local now = given_now
  if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  local rest = now % 1000
  local ms = (now - rest) / 1000
  local ms_up = rest == 0 and ms or ms + 1

  if not value then
    local is_whole = rate % 1 == 0 and interval % 1 == 0 and interval <= 315360000000
    if not oldest[1] and is_whole and config[3] == '0' and call('HGET', KEYS[1], 'countsExpire') then
      local expiry = 2 * interval + 1000 + (interval < 60000 and interval or 60000)
      call('ZADD', permits_key, ms_up, ARGV[2])
      call('PEXPIRE', permits_key, expiry)
      call('SET', value_key, rate - n, 'PX', expiry)
      return 0
    end
  elseif oldest[1] and #oldest[1] == 21 then
    local left, leaves = tonumber(value), oldest[2] + interval
    if left and left <= rate then
      if leaves > ms then
        if left >= n then
          -- Nothing is written before it is known that this is an integer.
          if redis.pcall('DECRBY', value_key, ARGV[1]) == left - n then
            call('ZADD', permits_key, ms_up, ARGV[2])
            return 0
          end
        elseif left + struct.unpack('<I4', oldest[1], 18) >= n
          and call('ZRANGE', permits_key, '-1', '-1', 'WITHSCORES')[2] + 0 <= ms_up then
          return math.max(leaves * 1000 - now, 1)
        end
      elseif call('ZCOUNT', permits_key, '-inf', ms - interval) == 1 then
        local back = struct.unpack('<I4', oldest[1], 18)
        local more = back - n
        local life = call('PTTL', value_key)
        local is_kept = life > 2 * interval + 500 or (life == -1 and not call('HGET', KEYS[1], 'countsExpire'))
        -- The last one that leaves says whether something is missing.
        if is_kept and left + back <= rate and left + more >= 0 and call('ZCARD', permits_key) > 1 then
          if redis.pcall('INCRBY', value_key, more) == left + more then
            call('ZREMRANGEBYRANK', permits_key, '0', '0')
            call('ZADD', permits_key, ms_up, ARGV[2])
            return 0
          end
        end
      end
    end
  end
end

-- include: permits

if left >= n then
  left = left - n
  call('ZADD', permits_key, text(ms_up), ARGV[2])
  write(interval, true)
  return 0
end

-- include: permits_wait
if broken then write(interval) end
settle()
return math.max((leaves_at(n - left) * 1000 - now), 1)
