-- Gives back what takes were charged by the sliding window.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. Each count is a string: see
-- include/counters.lua and include/sliding_window.lua.

-- include: refund_begin
-- include: sliding_window

-- include: counters

-- Adds units to the running totals of so many entries. 100 at a time: there is a limit to the
-- number of values.
local function add_to(entries, units)
  local parts = {}
  for from = 1, #entries, 100 * WINDOW_ENTRY_SIZE do
    local number = min(100, (#entries - from + 1) / WINDOW_ENTRY_SIZE)
    local all = '>' .. string.rep('I7I7', number)
    local values = { unpack(all, entries, from) }
    for n = 2, 2 * number, 2 do values[n] = (values[n] + units) % MODULUS end
    parts[#parts + 1] = pack(all, _G.unpack(values, 1, 2 * number))
  end
  return concat(parts)
end

-- An entry that holds nothing any more is removed, unless it is the only one. An entry that has
-- left the window stays as it is.
local function refund_counter(counter)
  local before, with_last = count_oldest(counter, receipt_stamp - 1, MODULUS)
  if before == counter.number then return 0 end
  local entries, at = counter.entries, before * WINDOW_ENTRY_SIZE
  local stamp, with = unpack(WINDOW_ENTRY, entries, at + 1)
  if stamp + counter.quota.window <= now then return 0 end
  if floor(stamp / counter.quota.variant) ~= floor(receipt_stamp / counter.quota.variant) then return 0 end
  local units = (with - with_last) % MODULUS
  local taken = min(max_units, units)
  if taken == 0 then return 0 end
  local older, behind = sub(entries, 1, at), at + WINDOW_ENTRY_SIZE
  local own = pack(WINDOW_ENTRY, stamp, with)
  local later = sub(entries, behind + 1)
  if before > counter.number / 2 then
    -- Only the differences of totals matter.
    own, later = pack(WINDOW_ENTRY, stamp, (with - taken) % MODULUS), add_to(later, -taken)
  else
    older, counter.base = add_to(older, taken), (counter.base + taken) % MODULUS
  end
  if taken == units and counter.number > 1 then
    own, counter.number = '', counter.number - 1
  end
  counter.entries = older .. own .. later
  return taken
end

local ranges
-- include: counters_refund
-- include: refund_end
