-- Gives back what takes were charged by the sliding window.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. Each count is a string: see
-- include/tallies.lua and include/sliding_window_tally.lua.

-- include: setup
-- include: sliding_window_tally
-- include: refund_begin

-- Adds units to the running totals of so many entries. 100 at a time: there is a limit to the
-- number of values.
local function add_to(entries, units)
  local parts = {}
  for from = 1, #entries, 100 * ENTRY_SIZE do
    local number = math.min(100, (#entries - from + 1) / ENTRY_SIZE)
    local all = '>' .. string.rep('I7I7', number)
    local values = { unpack(all, entries, from) }
    for n = 2, 2 * number, 2 do values[n] = (values[n] + units) % MODULUS end
    parts[#parts + 1] = pack(all, _G.unpack(values, 1, 2 * number))
  end
  return concat(parts)
end

-- An entry that holds nothing any more is removed, unless it is the only one. An entry that has
-- left the window stays as it is.
local function refund_tally(tally)
  local before, with_last = count_oldest(tally, receipt_stamp - 1, MODULUS)
  if before == tally.number then return 0 end
  local entries, at = tally.entries, before * ENTRY_SIZE
  local stamp, with = unpack(ENTRY, entries, at + 1)
  if stamp + tally.window <= now then return 0 end
  if floor(stamp / tally.variant) ~= floor(receipt_stamp / tally.variant) then return 0 end
  local held = (with - with_last) % MODULUS
  local taken = math.min(most, held)
  if taken == 0 then return 0 end
  local older, behind = sub(entries, 1, at), at + ENTRY_SIZE
  local own = pack(ENTRY, stamp, with)
  local later = sub(entries, behind + 1)
  if before > tally.number / 2 then
    -- Only the differences of totals matter.
    own, later = pack(ENTRY, stamp, (with - taken) % MODULUS), add_to(later, -taken)
  else
    older, tally.base = add_to(older, taken), (tally.base + taken) % MODULUS
  end
  if taken == held and tally.number > 1 then
    own, tally.number = '', tally.number - 1
  end
  tally.entries = older .. own .. later
  return taken
end

local runs
-- include: refund_tallies
-- include: refund_end
