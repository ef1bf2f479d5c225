-- How a lock stands; changes nothing.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- ARGV[1]  the holder that is asked for
--
-- Reply: {1 if anybody holds it, milliseconds until its lease ends or -1 if it never does, how often the holder
-- that is asked for has it}

-- include: lock

local lock = KEYS[1]
if call('HLEN', lock) == 0 then return { 0, 0, 0 } end
local held = call('HGET', lock, ARGV[1])
return { 1, call('PTTL', lock), held and count_of(held) or 0 }
