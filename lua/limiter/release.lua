-- Gives back permits that were granted: those that would come back soonest, so that no window ever holds more than the rate,
-- whichever they were.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the most permits to give back
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: the permits that were given back; less than 0 see there

local call, n, given_now, reads = redis.call, 0, ARGV[2], false
-- include: permits

local wanted, released = ARGV[1] + 0, 0
-- Without an expiry of its own the set must not come to an end and begin again: what is given back in part is added first.
while released < wanted do
  local some = call('ZRANGEBYSCORE', permits_key, '(' .. text(ms - interval), text(ms_up), 'WITHSCORES', 'LIMIT', '0', '128')
  if #some == 0 then break end
  for at = 1, #some, 2 do
    local member = some[at]
    local permits = weight(member)
    local taken = math.min(permits, wanted - released)
    if taken < permits then
      local identity = string.sub(member, 1, #member - 4)
      call('ZADD', permits_key, some[at + 1], identity .. struct.pack('<I4', permits - taken))
    end
    call('ZREM', permits_key, member)
    released = released + taken
    if released >= wanted then break end
  end
end
left = math.min(left + released, rate)
if released > 0 or broken then write(interval) end
return released
