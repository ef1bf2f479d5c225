-- Gives permits of requests in progress back, and says so to those that wait for them.
--
-- KEYS     1 to 64 counts of permits: see include/permits.lua
-- ARGV[1]  for each count the number of its holders, a big-endian integer of 2 bytes, and of each 4
--          big-endian integers of 7 bytes: process and number name it, the others say nothing here
-- ARGV[2]  the command that announces them: PUBLISH, or SPUBLISH in a cluster
--
-- Reply: for each holder 1 if it held a permit, or 0; or an error, for all holders of a count

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local replies, at = {}, 1

for place = 1, #KEYS do
  local key, number, freed = KEYS[place], 0, false
  number, at = unpack('>I2', ARGV[1], at)
  for _ = 1, number do
    local process, serial, _
    process, serial, _, _, at = unpack('>I7I7I7I7', ARGV[1], at)
    local member = pack('>I7I7', process, serial)
    local released = pcall('ZREM', key, member)
    -- This error is not about the key: the server is no master, and the connection looks for it.
    -- The whole call fails with it.
    if type(released) == 'table' and string.find(released.err, 'READONLY', 1, true) then
      call('ZREM', key, member)
    end
    freed = freed or released == 1
    replies[#replies + 1] = released
  end
  -- The permits are free, even if the server does not permit the announcement. One that does not
  -- know or permit SPUBLISH may permit PUBLISH.
  if freed and type(pcall(ARGV[2], key, '')) == 'table' and ARGV[2] ~= 'PUBLISH' then
    pcall('PUBLISH', key, '')
  end
end
return replies
