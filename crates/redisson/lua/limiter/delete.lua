-- Deletes a limiter and its grants. The keys of other clients expire by themselves, and a new rate
-- gives them another epoch.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  not used
--
-- Reply: 1, or 0 if the limiter did not exist

local existed = redis.call('DEL', KEYS[1])
for index = 2, 10 do redis.call('DEL', KEYS[index]) end
return existed
