-- The fixed window: decides whether takes fit into every quota of their keys, and charges those
-- that do.
--
-- KEYS     1 to 64 keys of one slot, each a string: see include/tallies.lua and
--          include/fixed_window_tally.lua
-- ARGV[1]  the questions: see include/read_question.lua; of a quota they say max and window in
--          microseconds
-- ARGV[2]  the call id, which the reply repeats: a number below 2^32, or 2^32 more if a key stands
--          in KEYS more than once
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see include/reply_format.lua. Refunds: see refund/fixed_window.lua.

-- include: setup
-- include: fixed_window_tally

local TELLS_HELD = false
-- Units count no longer because of leases.
local lengthen

local function read_quota(from)
  local max, window, behind = unpack('<I7I7', ARGV[1], from)
  return { max = max, window = window, limit = max, life = window, variant = 0 }, behind
end

local function new_tally(quota)
  return { window = quota.window, variant = 0, needed_until = 0, refundable_since = 0, used = 0,
    start = 0, units = 0 }
end

local function ends_at(tally)
  if tally.units == 0 then return 0 end
  return tally.start + tally.window
end

local carried_over = used_now

local function wait(tally) return tally.start + tally.window - now end

-- No tally holds more than 2^51 units: a rule with large costs may charge the tally of an earlier
-- one beyond that one's max.
local MAX_HELD = 2251799813685248

local function charge(tally, time, units)
  if tally.start > time then tally.start = time end
  if tally.units == 0 or tally.start + tally.window <= time then
    tally.start, tally.units = time, 0
  end
  local lost = tally.units + units - MAX_HELD
  if lost < 0 then lost = 0 end
  tally.units = tally.units + units - lost
  return lost
end

-- include: reply_format
-- include: read_values
-- include: tallies
