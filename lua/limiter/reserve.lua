-- Grants permits of a rate limiter for as soon as they are free, behind all that were granted before.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the permits
-- ARGV[2]  8 bytes that tell this grant from others
-- ARGV[3]  the most microseconds to wait for them; nothing is granted for later
-- ARGV[4]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: 1 and the microseconds to wait and the grant as it is kept; or 0 and the microseconds that it would take;
-- less than 0 see there

local call, n, given_now, reads = redis.call, ARGV[1] + 0, ARGV[4], false
-- include: permits
-- include: permits_wait

-- When so many of the newest and the permits that are asked for are all that is inside: from the newest on, since
-- there may be far more reservations than the rate.
local function fits_at()
  -- What is lost counts from now on, and nothing of it stands there yet.
  if lost > 0 then return ms_up + math.ceil(lost / rate) * interval end
  local room, from = rate - n, 0
  while true do
    local to = from + math.min(room, 127)
    local some = call('ZREVRANGE', permits_key, text(from), text(to), 'WITHSCORES')
    if #some == 0 then return ms_up end
    for at = 1, #some, 2 do
      room = room - weight(some[at])
      if room < 0 then return some[at + 1] + interval end
    end
    from = to + 1
  end
end

settle()
local at = ms_up
local newest = call('ZRANGE', permits_key, '-1', '-1', 'WITHSCORES')[2]
if newest then at = math.max(at, newest + 0) end
-- Whichever has less to look through.
if left < 0 and (lost > 0 or n - left > rate - n) then
  at = math.max(at, fits_at())
elseif left < n then
  at = math.max(at, leaves_at(n - left))
end

local wait = at > ms_up and at * 1000 - now or 0
if wait > ARGV[3] + 0 then
  if broken then write(interval) end
  return { 0, wait }
end
local identity = string.char(82) .. struct.pack('>I7', now) .. ARGV[2]
local member = struct.pack('<Bc0I4', 16, identity, n)
left = left - n
call('ZADD', permits_key, text(at), member)
write(at - ms + interval, true)
return { 1, wait, member }
