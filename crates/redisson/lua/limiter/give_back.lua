-- Gives back grants that no caller uses, and removes their callers from the fair queue.
--
-- KEYS        see lua/include/permits.lua
-- ARGV[1]     now in microseconds since 1970, only in tests; empty: the server's clock
-- ARGV[2...]  the grants, at most 64: members of KEYS[3], whether they were granted or not
--
-- Reply: how many permits came back, of grants that still count; a negative number as in
--        lua/include/permits.lua

for index = 2, #ARGV do
  redis.call('ZREM', KEYS[7], ARGV[index])
  redis.call('ZREM', KEYS[9], ARGV[index])
end
if redis.call('EXISTS', KEYS[7]) == 0 then redis.call('DEL', KEYS[8]) end
local call, own, requested, is_read_only, chosen_at = redis.call, 3, 0, false
local test_now = ARGV[1] ~= '' and ARGV[1]
-- include: permits

local returned = 0
for index = 2, #ARGV do
  local member = ARGV[index]
  if still_counts(member) then
    returned = returned + permits_of(member)
    call('ZREM', permits_key, member)
  end
end
if returned > 0 then
  remaining = math.min(remaining + returned, rate)
  store()
end
return returned
