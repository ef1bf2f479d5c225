-- Gives back permits that were granted to a client: those that would come back soonest, so that no window ever holds
-- more than the rate, whichever they were.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the most permits to give back
-- ARGV[2]  the first 8 bytes of the identities of this client's grants
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: the permits that were given back; less than 0 see there

local call, n, given_now, reads = redis.call, 0, ARGV[3], false
-- include: permits

local wanted, released, from = ARGV[1] + 0, 0, 0
local inside, now_text = '(' .. text(ms - interval), text(ms_up)
while released < wanted do
  local some = call('ZRANGEBYSCORE', permits_key, inside, now_text, 'WITHSCORES', 'LIMIT', text(from), '128')
  if #some == 0 then break end
  for at = 1, #some, 2 do
    local member = some[at]
    if #member == 21 and string.sub(member, 2, 9) == ARGV[2] and released < wanted then
      local permits = weight(member)
      local taken = math.min(permits, wanted - released)
      -- Without an expiry of its own the set must not come to an end and begin again: the rest is added first.
      if taken < permits then
        local identity = string.sub(member, 1, #member - 4)
        call('ZADD', permits_key, some[at + 1], identity .. struct.pack('<I4', permits - taken))
      end
      call('ZREM', permits_key, member)
      released = released + taken
    else
      from = from + 1
    end
  end
end
left = math.min(left + released, rate)
if released > 0 or broken then write() end
return released
