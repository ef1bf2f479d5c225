-- What is known of holds, where keys may be held: behind the keys stand as many that say it, each
-- of them a hold (hold.lua) or what is known of failures (lockout.lua). Where there is nothing, the
-- call is as one of keys that are never held.
--
-- Uses   kind
-- Gives  kind and KEYS as of such a call; holds: by place, what was found, or nil if nothing was
local holds
if kind >= HOLDS then
  kind = kind - HOLDS
  local places = #KEYS / 2
  local found = places > 1 and redis.call('MGET', _G.unpack(KEYS, places + 1))
    or { redis.pcall('GET', KEYS[2]) }
  for place = 1, places do
    KEYS[places + place] = nil
    if found[place] then kind, holds = NAMES_TWICE, found end
  end
end
