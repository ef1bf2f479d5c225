-- Gives a permit back; or gives up a request of which nobody knows whether it got one.
--
-- KEYS[1]  the permits that are out, a sorted set: their holders by the milliseconds at which their leases end
-- KEYS[2]  what became of the request, a string: 1 released, gone if it was given up before it came
-- ARGV[1]  the holder
-- ARGV[2]  1 to give up, 0 to give back
-- ARGV[3]  for how many milliseconds to remember what became of the request
-- ARGV[4]  the channel on which waiters are told
--
-- Reply: 1 if it was out, and is not any more; 0 if it was not out

local call = redis.call
local set, latch, holder, life = KEYS[1], KEYS[2], ARGV[1], ARGV[3]
local held = call('ZSCORE', set, holder)
local known = call('GET', latch)
if known then return known == '1' and 1 or 0 end
if not held then
  if ARGV[2] == '1' then call('SET', latch, 'gone', 'PX', life) end
  return 0
end

call('ZREM', set, holder)
-- It is released, even if there is no memory left to remember it, or no permission to tell it.
redis.pcall('SET', latch, '1', 'PX', life)
redis.pcall('PUBLISH', ARGV[4], '0')
return 1
