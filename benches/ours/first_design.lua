-- What the best-known sorted-set limiter does, to measure against: one member for each request, scored
-- by the caller's clock, purged only when the set is full.
--
-- KEYS[1]  the set
-- ARGV     now in ms, window in ms, max, now minus window, a member that nobody else uses
-- Reply: 200 allowed, 500 denied

local window, max = tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('ZCARD', KEYS[1]) < max then
  redis.call('ZADD', KEYS[1], ARGV[1], ARGV[5])
  redis.call('PEXPIRE', KEYS[1], window + 1000)
  return 200
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, ARGV[4])
redis.call('PEXPIRE', KEYS[1], window + 1000)
if redis.call('ZCARD', KEYS[1]) < max then
  redis.call('ZADD', KEYS[1], ARGV[1], ARGV[5])
  return 200
end
return 500
