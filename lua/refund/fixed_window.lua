-- Gives back what takes were charged by the fixed window.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. Each count is a string: see
-- include/tallies.lua and include/fixed_window_tally.lua.

-- include: setup
-- include: fixed_window_tally
-- include: refund_begin

local function refund_tally(tally)
  if receipt_stamp < tally.start then return 0 end
  local taken = math.min(most, used_now(tally))
  tally.units = tally.units - taken
  return taken
end

local runs
-- include: refund_tallies
-- include: refund_end
