-- Grants permits to callers that want the same number, one caller after the other, while enough
-- permits are left.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  now in microseconds since 1970, only in tests; empty: the server's clock
-- ARGV[2]  how many permits each caller wants
-- ARGV[3]  the number of callers, at most 64
-- ARGV[4]  the grants of the callers, one after the other: members of KEYS[3], 21 bytes each
-- ARGV[5]  how many permits of Redisson counted lately; empty: there were none a moment ago
-- ARGV[6]  1 if a call whose reply was lost may have granted some of the callers their permits:
--          they have them then, from now on; else 0
-- ARGV[7]  when the callers' process chose its rate, in microseconds; empty: it has none
--
-- Reply: {how many callers were granted their permits, or with ARGV[6] their positions, from 1; the
--         microseconds until the next caller's permits can be granted, or 0}; if permits of
--         Redisson were counted, also how many counted lately, and the interval in milliseconds; a
--         negative number as in lua/include/permits.lua

local call, own, requested, is_read_only = redis.call, 3, ARGV[2] + 0, false
local chosen_at = tonumber(ARGV[7])
local test_now = ARGV[1] ~= '' and ARGV[1]
local number, is_in_doubt = ARGV[3] + 0, ARGV[6] == '1'

-- The fast path, with as few commands as possible: one caller, complete keys or none, and at most
-- one expired grant.
--
-- Without it a call takes the server 1.25 to 1.4 times as long, whether allowed or denied, of one
-- key or of many. For several callers in a call there is no difference.
--
-- A call that is executed after its repetition finds its grant: then the next call counts anew.
--
-- While no grant has expired, the expiry of the keys stays as it is: all grants since it was set
-- are within one interval of each other, and `store` sets it long enough for that.
local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'countsExpire',
  'chosenAt')
local rate, interval = tonumber(config[1] or nil), tonumber(config[2] or nil)
local value_key, permits_key, is_current = KEYS[2], KEYS[3], config[3] == '0'
if rate and interval and config[3] == '1' then
  value_key, permits_key = KEYS[4], KEYS[5]
  local epoch = (call('HGET', KEYS[1], 'epoch') or '') .. ' ' .. config[1] .. ' ' .. config[2]
  is_current = call('GET', KEYS[6]) == epoch
end
if number == 1 and is_current and not is_in_doubt and not config[4] and rate and interval
  and requested <= rate and interval >= 1
  and (not chosen_at or (tonumber(config[6] or nil) or 0) >= chosen_at) then
  local value = call('GET', value_key)
  local oldest = call('ZRANGE', permits_key, '0', '0', 'WITHSCORES')
  local now = test_now or server_now
  local rest = now % 1000
  local ms = (now - rest) / 1000
  local ms_up = rest == 0 and ms or ms + 1
  local counts_expire_for = config[1] .. ' ' .. config[2] .. ' 0'

  if not value then
    local is_whole = rate % 1 == 0 and interval % 1 == 0 and interval <= 315360000000
    if not oldest[1] and is_whole and config[3] == '0' and config[5] == counts_expire_for then
      local expiry = 2 * interval + 1000 + (interval < 60000 and interval or 60000)
      call('ZADD', permits_key, ms_up, ARGV[4])
      call('PEXPIRE', permits_key, expiry)
      call('SET', value_key, rate - requested, 'PX', expiry)
      return { 1, 0 }
    end
  elseif oldest[1] and #oldest[1] == 21 then
    local remaining, expires_at = tonumber(value), oldest[2] + interval
    local oldest_permits = struct.unpack('<I4', oldest[1], 18)
    -- What may be left to Redisson is left to the slow path.
    local may_be_held = ARGV[5] == '' and 1 or rate / 2
    if remaining and remaining + oldest_permits <= rate and (config[3] == '1'
      or config[5] == counts_expire_for or remaining - requested >= may_be_held) then
      if expires_at > ms then
        if remaining >= requested then
          -- DECRBY fails before anything is written if the value is not an integer.
          if redis.pcall('DECRBY', value_key, ARGV[2]) == remaining - requested then
            if call('ZADD', permits_key, ms_up, ARGV[4]) == 0 then call('DEL', value_key) end
            return { 1, 0 }
          end
        elseif remaining + oldest_permits >= requested
          and call('ZRANGE', permits_key, '-1', '-1', 'WITHSCORES')[2] + 0 <= ms_up then
          return { 0, math.max(expires_at * 1000 - now, 1) }
        end
      elseif call('ZCOUNT', permits_key, '-inf', ms - interval) == 1 then
        local change = oldest_permits - requested
        local expiry = call('PTTL', value_key)
        -- Without an expiry the counts are shared with Redisson, or are about to get one.
        local is_kept = expiry > 2 * interval + 500
          or expiry == -1 and config[3] == '0' and config[5] ~= counts_expire_for
        -- When the last grant expires, missing permits show: that is left to the slow path.
        if is_kept and remaining + oldest_permits <= rate and remaining + change >= 0
          and call('ZCARD', permits_key) > 1 then
          if redis.pcall('INCRBY', value_key, change) == remaining + change then
            call('ZREMRANGEBYRANK', permits_key, '0', '0')
            if call('ZADD', permits_key, ms_up, ARGV[4]) == 0 then call('DEL', value_key) end
            return { 1, 0 }
          end
        end
      end
    end
  end
end

-- include: permits

local redisson_average = tonumber(ARGV[5])
-- include: give_way

local granted, members = {}, {}
for position = 1, number do
  local member = string.sub(ARGV[4], 21 * position - 20, 21 * position)
  local has_permits = is_in_doubt and still_counts(member)
  if has_permits or remaining - left_to_redisson >= requested then
    if not has_permits then remaining = remaining - requested end
    granted[#granted + 1] = position
    members[#members + 1] = text(ms_up)
    members[#members + 1] = member
  elseif not is_in_doubt then
    break
  end
end
if #granted > 0 then
  -- A call that is executed after its repetition finds grants that count already.
  if call('ZADD', permits_key, unpack(members)) < #granted then
    remaining = count_remaining() - missing
  end
  store(true)
end
local reply = is_in_doubt and granted or #granted
if #granted == number then return { reply, 0, redisson_lately, interval } end

-- include: permits_wait
return { reply, wait_for(requested - remaining + left_to_redisson), redisson_lately, interval }
