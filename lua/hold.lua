-- Holds a key: its takes are denied until then, whatever its count says. A hold is never shortened.
--
-- KEYS[1]  the hold: a string, the microseconds since the epoch until which it lasts
-- ARGV[1]  for how many microseconds from now on; 0 only asks
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: for how many microseconds the key is held now

-- In milliseconds: a hold that is over does no harm.
local SLACK = 2000
local clock = ARGV[2] and { 0, ARGV[2] } or redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- A value of another type, or one that is no number, counts as no hold.
local known = redis.pcall('GET', KEYS[1])
local held_for = (type(known) == 'string' and tonumber(known) or 0) - now
if not (held_for > ARGV[1] + 0 and held_for <= TEN_YEARS) then
  held_for = ARGV[1] + 0
  if held_for > 0 then
    redis.call('SET', KEYS[1], string.format('%.0f', now + held_for), 'PX',
      string.format('%.0f', math.ceil(held_for / 1000) + SLACK))
  end
end
return string.format('%.0f', held_for)
