-- Gives a grant back that nobody has used.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the grant as it is kept; or the last 8 bytes of its identity, if it was reserved and the answer got lost
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: the permits that were given back, 0 if they are known no longer; less than 0 see there

local call, n, given_now, reads = redis.call, 0, ARGV[2], false
-- include: permits

-- From the newest on, since what is reserved is behind all else.
local function reserved_as(identity)
  local from = 0
  while true do
    local some = call('ZREVRANGE', permits_key, text(from), text(from + 127), 'WITHSCORES')
    if #some == 0 then return '' end
    for at = 1, #some, 2 do
      local member, score = some[at], some[at + 1]
      if score + 0 <= ms - interval then return '' end
      if #member == 21 and string.sub(member, 10, 17) == identity then return member end
    end
    from = from + 128
  end
end

local member = #ARGV[1] == 8 and reserved_as(ARGV[1]) or ARGV[1]
if member == '' then return 0 end
local permits = weight(member)
local score = call('ZSCORE', permits_key, member)
if not score or score + 0 <= ms - interval then return 0 end
left = math.min(left + permits, rate)
call('ZREM', permits_key, member)
write(interval)
return permits
