-- Reads the values of all keys at once: one command costs less than one for each key. A key that
-- stands in KEYS more than once is read each time.
--
-- Gives  repeats: whether there is such a key; values, or false
local repeats = ARGV[2] + 0 >= 4294967296
local values = #KEYS > 1 and not repeats and call('MGET', _G.unpack(KEYS))
