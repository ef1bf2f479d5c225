-- Keeps permits of requests in progress for another lease. One that the server has lost is there
-- again, also above max: the request of its holder runs.
--
-- KEYS     1 to 64 counts of permits: see include/permits.lua
-- ARGV[1]  for each count the number of its holders, a big-endian integer of 2 bytes, and of each 4
--          big-endian integers of 7 bytes: process and number name it; its lease in milliseconds;
--          and until when it may be renewed, in microseconds: behind that its release may have come
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: for each holder 1 if its permit is held, or 0 if it was too late; or an error

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, format = math.floor, string.format
local clock = not ARGV[2] and call('TIME')
local now = clock and clock[1] * 1000000 + clock[2] or ARGV[2] + 0
local replies, at = {}, 1

for place = 1, #KEYS do
  local key, number = KEYS[place], 0
  number, at = unpack('>I2', ARGV[1], at)
  for _ = 1, number do
    local process, serial, lease, deadline
    process, serial, lease, deadline, at = unpack('>I7I7I7I7', ARGV[1], at)
    local renewed = 0
    if now <= deadline then
      -- ZCOUNT fails for a value of another type before anything changes it. PEXPIRE comes before
      -- ZADD, since a server without free memory permits PEXPIRE, and refuses a script whose first
      -- write is ZADD.
      local expiry = format('%.0f', 2 * lease)
      renewed = pcall('ZCOUNT', key, '0', '0')
      if type(renewed) ~= 'table' then renewed = pcall('PEXPIRE', key, expiry) end
      if type(renewed) ~= 'table' then
        renewed = pcall('ZADD', key, format('%.0f', floor(now / 1000) + 1 + lease),
          pack('>I7I7', process, serial))
      end
      if renewed == 1 then pcall('PEXPIRE', key, expiry) end
      if type(renewed) == 'table' then
        -- This error is not about the key: the server is no master. The whole call fails with it.
        if string.find(renewed.err, 'READONLY', 1, true) then call('PEXPIRE', key, expiry) end
      else
        renewed = 1
      end
    end
    replies[#replies + 1] = renewed
  end
end
return replies
