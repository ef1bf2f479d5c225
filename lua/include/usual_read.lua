-- Reads the strings of all keys, or takes the one that a lone take has read: raw.
local values = keys[2] and call('MGET', _G.unpack(keys))
  or { raw == nil and pcall('GET', keys[1]) or raw }
