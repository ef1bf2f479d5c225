-- Reads the values of all keys at once: one command costs less than one for each key.
--
-- Gives  values, or nil of a single key
local values = #KEYS > 1 and call('MGET', _G.unpack(KEYS))
