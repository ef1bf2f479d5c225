-- The commands of Redisson's rate limiter when it acquires permits, to measure against: the rates in a hash, what
-- is left in a string, the grants of the last interval in a sorted set.
--
-- KEYS     the hash, the string, the set
-- ARGV     permits, now in ms, 16 random bytes
-- Reply: nil if granted, else the delay in ms

local rates, left_key, grants = KEYS[1], KEYS[2], KEYS[3]
local permits, now, id = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

local rate = redis.call('HGET', rates, 'rate')
local interval = redis.call('HGET', rates, 'interval')
local kind = redis.call('HGET', rates, 'type')
if not rate or not interval or not kind then return redis.error_reply('there is no such limiter') end
rate, interval = tonumber(rate), tonumber(interval)
if permits > rate then return redis.error_reply('more permits than the rate') end

local delay = nil
local function grant()
  redis.call('ZADD', grants, now, struct.pack('Bc0I', #id, id, permits))
  redis.call('DECRBY', left_key, permits)
end

local left = redis.call('GET', left_key)
if left then
  local released = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', grants, 0, now - interval)) do
    local _, units = struct.unpack('Bc0I', member)
    released = released + units
  end
  if released > 0 then
    redis.call('ZREMRANGEBYSCORE', grants, 0, now - interval)
    left = math.min(tonumber(left) + released, rate)
    redis.call('SET', left_key, left)
  end
  if tonumber(left) < permits then
    local first = redis.call('ZRANGE', grants, 0, 0, 'WITHSCORES')
    delay = 3 + interval - (now - tonumber(first[2]))
  else
    grant()
  end
else
  redis.call('SET', left_key, rate)
  grant()
end

local expiry = redis.call('PTTL', rates)
if expiry > 0 then
  redis.call('PEXPIRE', left_key, expiry)
  redis.call('PEXPIRE', grants, expiry)
end
return delay
