-- Takes a lock away from its holder.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- ARGV[1]  the channel on which the release is announced
--
-- Reply: 1 if the lock was held, else 0

local lock = KEYS[1]
if redis.call('HLEN', lock) == 0 then return 0 end
redis.call('DEL', lock)
redis.pcall('PUBLISH', ARGV[1], '0')
return 1
