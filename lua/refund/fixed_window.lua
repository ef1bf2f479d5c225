-- Gives back what takes were charged by the fixed window.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. Each count is a string: see
-- include/counters.lua and include/fixed_window.lua.

-- include: refund_begin
-- include: fixed_window
-- include: counters

local function refund_counter(counter)
  if receipt_stamp < counter.start then return 0 end
  local taken = min(max_units, used_now(counter))
  counter.units = counter.units - taken
  return taken
end

local ranges
-- include: counters_refund
-- include: refund_end
