-- Reads whether keys are held, in a call about keys that may be. Behind its keys, KEYS has a second
-- key for each: a hold (hold.lua), failures (lockout.lua), or no value. If none of them has a
-- value, the call continues as one about keys that are never held.
--
-- Uses   kind; values: of all keys, or false
-- Gives  kind and KEYS as of such a call; holds: by place, what was found, or nil if nothing was
local holds
if kind >= HOLDS then
  kind = kind - HOLDS
  local names, found = KEYS, values or call('MGET', _G.unpack(KEYS))
  local places = #names / 2
  for at = places + 1, 2 * places do
    names[at] = nil
    local known = found[at]
    if known then
      kind, holds = NAMES_TWICE, holds or {}
      holds[at - places] = known
    end
  end
end
