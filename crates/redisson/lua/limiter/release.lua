-- Gives back permits of one client. The permits that expire first come back, whichever were used,
-- so that no window ever holds more than the rate. Permits that a lost key held may be of this
-- client: they come first, and stay.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  now in microseconds since 1970, only in tests; empty: the server's clock
-- ARGV[2]  how many permits to give back at most
-- ARGV[3]  the id of the client: the first 8 bytes of the ids of its grants
--
-- Reply: how many permits came back; a negative number as in lua/include/permits.lua

local call, own, requested, is_read_only, chosen_at = redis.call, 3, 0, false
local test_now = ARGV[1] ~= '' and ARGV[1]
-- include: permits

local wanted, released, offset = ARGV[2] + 0, 0, 0
local from, to = '(' .. text(expired_until), text(ms_up)
while released < wanted do
  local grants = call('ZRANGEBYSCORE', permits_key, from, to, 'WITHSCORES', 'LIMIT', text(offset),
    '128')
  if #grants == 0 then break end
  for index = 1, #grants, 2 do
    local member = grants[index]
    if #member == 21 and string.sub(member, 10, 17) == 'missing_' then
      wanted, offset = wanted - permits_of(member), offset + 1
    elseif #member == 21 and string.sub(member, 2, 9) == ARGV[3] and released < wanted then
      local permits = permits_of(member)
      local taken = math.min(permits, wanted - released)
      -- The rest is added before the grant is removed: Redis would delete an empty set together
      -- with its expiry.
      if taken < permits then
        local id = string.sub(member, 1, #member - 4)
        call('ZADD', permits_key, grants[index + 1], id .. struct.pack('<I4', permits - taken))
      end
      call('ZREM', permits_key, member)
      released = released + taken
    else
      offset = offset + 1
    end
  end
end
remaining = math.min(remaining + released, rate)
if released > 0 or needs_write then store() end
return released
