-- Forgets a rate limiter and all that it has granted; of other clients', what is kept comes to an end by itself.
--
-- KEYS     see lua/include/permits.lua
--
-- Reply: 1, or 0 if there was none

local existed = redis.call('DEL', KEYS[1])
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9])
return existed
