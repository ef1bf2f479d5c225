-- Removes units of a take from the entry that the take was charged to, and returns how many. The
-- list begins with the first entry that is not stamped before the take. An entry is { stamp,
-- running total before it, running total with it }. An entry that holds nothing any more is
-- removed, unless it is the only one. An entry that has left the window stays as it is.
--
-- Uses   now, receipt_stamp
-- Gives  refund_entry
local function refund_entry(entries, at_most, resolution, window, is_only)
  local first = entries[1]
  if not first or first[1] + window <= now then return 0 end
  if floor(first[1] / resolution) ~= floor(receipt_stamp / resolution) then return 0 end
  local held = (first[3] - first[2]) % MODULUS
  local taken = math.min(at_most, held)
  for n, entry in ipairs(entries) do
    entry[3] = (entry[3] - taken) % MODULUS
    if n > 1 then entry[2] = (entry[2] - taken) % MODULUS end
  end
  if taken == held and not is_only then table.remove(entries, 1) end
  return taken
end
