-- Takes a lock away from its holder.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- ARGV[1]  the channel on which the release is announced
-- ARGV[2]  the command that announces it: PUBLISH, or SPUBLISH in a cluster
--
-- Reply: 1 if the lock was held, else 0

-- include: lock

local lock = KEYS[1]
if call('HLEN', lock) == 0 then return 0 end
call('DEL', lock)
announce(ARGV[2], ARGV[1])
return 1
