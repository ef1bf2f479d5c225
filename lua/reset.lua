-- Forgets what counts under one key of a store.
--
-- KEYS[1]  the key
-- KEYS[2]  what was given back of it
-- Reply    1 if anything was counted, 0 if nothing was
return redis.call('DEL', KEYS[1], KEYS[2]) > 0 and 1 or 0
