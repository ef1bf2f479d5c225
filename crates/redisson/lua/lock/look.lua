-- Returns the state of a lock. Changes nothing.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- ARGV[1]  a holder
--
-- Reply: {1 if the lock is held, else 0; milliseconds until its lease ends, or -1 if it never ends;
--        how often that holder holds it}

-- include: lock

local lock = KEYS[1]
if call('HLEN', lock) == 0 then return { 0, 0, 0 } end
local held = call('HGET', lock, ARGV[1])
return { 1, call('PTTL', lock), held and to_integer(held, 1) or 0 }
