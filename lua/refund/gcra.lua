-- Gives back what a take was charged by the generic cell rate algorithm.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. KEYS[1] is a string: see
-- include/tallies.lua and include/gcra_tally.lua.

-- include: setup
-- include: drain
-- include: gcra_tally
-- include: refund_begin

-- The units that were charged after the take and not given back since; of each tally the same. At
-- most 4,096 refunds are read. Of the others, the units count as charged and not given back.
local charged_later
local function charged_after(serial)
  local after = (serial - receipt_serial) % MODULUS
  local later = after
  local known = call('ZRANGEBYSCORE', records, stamp_text, '+inf', 'LIMIT', '0', '4096')
  for _, record in ipairs(known) do
    if #record == RECORD_SIZE then
      local _, of, _, given_back = unpack('>I7I7I7I7', record)
      if (serial - of) % MODULUS < after then later = later - given_back end
    end
  end
  return math.max(later, 0)
end

-- First in, first out: the units of the take that have not begun to drain.
local function refund_tally(tally, serial)
  local gone, rest = drained(math.max(now - tally.start, 0), tally)
  if rest then gone = gone + 1 end
  charged_later = charged_later or charged_after(serial)
  local taken = math.max(math.min(most, tally.units - gone - charged_later), 0)
  tally.units = tally.units - taken
  return taken
end

-- include: refund_tallies
-- include: refund_end
