-- Reads the state of a lone take's key, in a script that keeps strings.
--
-- Gives  key; raw: the string, or false if there is none; no state if the key is held or holds a
--        value of another type
  local key = keys[1]
  if kind == LONE then
    raw = pcall('GET', key)
  else
    -- It may be held, and mostly is not: see include/holds.lua. MGET answers nothing for a key of
    -- another type, and GET an error.
    local found = call('MGET', key, keys[2])
    raw = found[2] and '' or found[1] or pcall('GET', key)
  end
