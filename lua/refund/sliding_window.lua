-- Gives back what a take was charged by the sliding window.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. KEYS[1] is a string: see
-- include/tallies.lua and include/sliding_window_tally.lua.

-- include: setup
-- include: sliding_window_tally
-- include: refund_begin
-- include: refund_entry

local function refund_tally(tally)
  local before, with_last = count_oldest(tally, receipt_stamp - 1, MODULUS)
  local entries, kept = {}, { sub(tally.entries, 1, before * ENTRY_SIZE) }
  for n = before, tally.number - 1 do
    local stamp, with = unpack(ENTRY, tally.entries, n * ENTRY_SIZE + 1)
    entries[#entries + 1] = { stamp, with_last, with }
    with_last = with
  end
  local taken = refund_entry(entries, most, tally.variant, tally.window, tally.number == 1)
  for _, entry in ipairs(entries) do kept[#kept + 1] = pack(ENTRY, entry[1], entry[3]) end
  tally.entries, tally.number = concat(kept), before + #entries
  return taken
end

-- include: refund_tallies
-- include: refund_end
