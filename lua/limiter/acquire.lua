-- Grants permits of a rate limiter to callers that want as many each, to one behind the other while as many are left.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the permits of each
-- ARGV[2]  the number of callers, at most 64
-- ARGV[3]  a grant for each as it is kept: a member of the set, of 21 bytes, with these permits
-- ARGV[4]  now in microseconds since the epoch, only in tests; empty: the server's own clock
-- ARGV[5]  the deadline by the server's own clock, in microseconds
--
-- Reply: how many callers have their permits, and the microseconds until the next can have them, or 0; a number less
-- than 0 see there; the error LATE after the deadline

local call, n, given_now, reads = redis.call, ARGV[1] + 0, ARGV[4] ~= '' and ARGV[4], false
local number = ARGV[2] + 0

-- The common way: one caller, a state that is whole or not there yet, and at most one grant that has left. It asks only
-- what it needs.
--
-- The expiry is left alone as long as no grant leaves: then all that are granted follow within an interval of the one
-- that has set it, and it was set for as long in advance. When one leaves, it is looked after.
local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'countsExpire')
local rate, interval = tonumber(config[1] or nil), tonumber(config[2] or nil)
local value_key, permits_key, is_known = KEYS[2], KEYS[3], config[3] == '0'
if rate and interval and config[3] == '1' then
  value_key, permits_key = KEYS[4], KEYS[5]
  local epoch = call('HGET', KEYS[1], 'epoch')
  is_known = call('GET', KEYS[6]) == (epoch or '') .. ' ' .. config[1] .. ' ' .. config[2]
end
if number == 1 and is_known and not config[4] and rate and interval and n <= rate and interval >= 1 then
  local value = call('GET', value_key)
  local oldest = call('ZRANGE', permits_key, '0', '0', 'WITHSCORES')
  local now = given_now
  if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
    if now > ARGV[5] + 0 then return redis.error_reply('LATE the deadline is over') end
  end
  local rest = now % 1000
  local ms = (now - rest) / 1000
  local ms_up = rest == 0 and ms or ms + 1

  if not value then
    local is_whole = rate % 1 == 0 and interval % 1 == 0 and interval <= 315360000000
    if not oldest[1] and is_whole and config[3] == '0'
      and config[5] == config[1] .. ' ' .. config[2] .. ' 0' then
      local expiry = 2 * interval + 1000 + (interval < 60000 and interval or 60000)
      call('ZADD', permits_key, ms_up, ARGV[3])
      call('PEXPIRE', permits_key, expiry)
      call('SET', value_key, rate - n, 'PX', expiry)
      return { 1, 0 }
    end
  elseif oldest[1] and #oldest[1] == 21 then
    local left, leaves = tonumber(value), oldest[2] + interval
    if left and left + struct.unpack('<I4', oldest[1], 18) <= rate then
      if leaves > ms then
        if left >= n then
          -- Nothing is written before it is known that this is an integer.
          if redis.pcall('DECRBY', value_key, ARGV[1]) == left - n then
            call('ZADD', permits_key, ms_up, ARGV[3])
            return { 1, 0 }
          end
        elseif left + struct.unpack('<I4', oldest[1], 18) >= n
          and call('ZRANGE', permits_key, '-1', '-1', 'WITHSCORES')[2] + 0 <= ms_up then
          return { 0, math.max(leaves * 1000 - now, 1) }
        end
      elseif call('ZCOUNT', permits_key, '-inf', ms - interval) == 1 then
        local back = struct.unpack('<I4', oldest[1], 18)
        local more = back - n
        local life = call('PTTL', value_key)
        -- Without an expiry it is shared, or is about to get one.
        local is_kept = life > 2 * interval + 500 or life == -1 and config[3] == '0'
          and config[5] ~= config[1] .. ' ' .. config[2] .. ' 0'
        -- The last one that leaves says whether something is missing.
        if is_kept and left + back <= rate and left + more >= 0 and call('ZCARD', permits_key) > 1 then
          if redis.pcall('INCRBY', value_key, more) == left + more then
            call('ZREMRANGEBYRANK', permits_key, '0', '0')
            call('ZADD', permits_key, ms_up, ARGV[3])
            return { 1, 0 }
          end
        end
      end
    end
  end
end

-- include: permits
if not given_now and now > ARGV[5] + 0 then return redis.error_reply('LATE the deadline is over') end

local granted = math.max(math.min(math.floor(left / n), number), 0)
if granted > 0 then
  local members = {}
  for place = 1, granted do
    members[2 * place - 1] = text(ms_up)
    members[2 * place] = string.sub(ARGV[3], 21 * place - 20, 21 * place)
  end
  left = left - granted * n
  call('ZADD', permits_key, unpack(members))
  write(true)
end
if granted == number then return { granted, 0 } end

-- include: permits_wait
return { granted, wait_for(n - left) }
