-- Takes a lock away from whoever holds it.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- ARGV[1]  the channel on which waiters are told
--
-- Reply: 1 if it was held, 0 if not

local lock = KEYS[1]
if redis.call('HLEN', lock) == 0 then return 0 end
redis.call('DEL', lock)
redis.pcall('PUBLISH', ARGV[1], '0')
return 1
