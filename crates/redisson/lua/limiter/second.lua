-- Grants permits as Redisson 3.13.3 to 3.16.3 did: a sliding window. A denied caller is told when
-- the earliest grant expires, even if too few permits are available then.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  now in microseconds since 1970, only in tests; empty: the server's clock
-- ARGV[2]  how many permits the caller wants
-- ARGV[3]  the grant as the third generation stores it; this generation keeps its id in 4
--          bytes
-- ARGV[4]  1 if a call whose reply was lost may have granted the permits: the caller has them then,
--          from now on; else 0
-- ARGV[5]  when the callers' process chose its rate, in microseconds; empty: it has none
--
-- Reply: 0 if they were granted, else the microseconds until the earliest grant expires; a negative
--        number as in lua/include/permits.lua

local call, own, requested, is_read_only = redis.call, 2, ARGV[2] + 0, false
local chosen_at = tonumber(ARGV[5])
local test_now = ARGV[1] ~= '' and ARGV[1]
-- include: permits

-- The id begins with the client and ends with a number: neither alone is unique.
local client, number = struct.unpack('>I4', ARGV[3], 2), struct.unpack('>I4', ARGV[3], 14)
local member = struct.pack('>i4<I4', bit.bxor(client, number), requested)
local has_permits = ARGV[4] == '1' and still_counts(member)
if has_permits or remaining >= requested then
  if not has_permits then remaining = remaining - requested end
  call('ZADD', permits_key, text(ms_up), member)
  store(true)
  return 0
end
if needs_write then store() end
local from = '(' .. text(expired_until)
local first = call('ZRANGEBYSCORE', permits_key, from, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
return math.max(((first[2] or ms_up) + interval) * 1000 - now, 1)
