-- The fixed window: decides whether takes fit into every quota of their keys, and charges those
-- that do.
--
-- KEYS     1 to 64 keys of one slot, each a string: see include/tallies.lua
-- ARGV[1]  the questions: see include/read_question.lua; of a quota they say max and window in
--          microseconds
-- ARGV[2]  the call id, a number below 2^32 that the reply repeats
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see include/reply_format.lua. Refunds: see include/refund_begin.lua.
--
-- A tally, in big-endian integers of 7 bytes:
--   max, window, needed_until, refundable_since
--                  as in all tallies
--   start, units   when its window began, and the units charged since then

-- include: setup

local MARK, HEADER, HEADER_SIZE = 250, '>BI7I7', 15
local TALLY, TALLY_SIZE = '>I7I7I7I7I7I7', 42
local TELLS_HELD, charged_after = false, nil
local tallies, serial, last_charge, anything_counts, lease_text
-- Units count no longer because of leases.
local LEASED_MARK, lengthen
local single, spare = { false }, false

local function read_tally(raw, from, charged_at)
  if from + TALLY_SIZE - 1 > #raw then return nil end
  local max, window, needed_until, refundable_since, start, units, behind =
    unpack(TALLY, raw, from)
  if start > charged_at then return nil end
  return { max = max, window = window, variant = 0, life = window, needed_until = needed_until,
    refundable_since = refundable_since, used = 0, start = start, units = units }, behind
end

local function write_tally(tally)
  return pack(TALLY, tally.max, tally.window, tally.needed_until, tally.refundable_since,
    tally.start, tally.units)
end

local function ends_at(tally)
  if tally.units == 0 then return 0 end
  return tally.start + tally.window
end

local function used_now(tally)
  if tally.start + tally.window <= now then return 0 end
  return tally.units
end

if is_refund then
-- include: refund_begin
  local function refund_tally(tally)
    if receipt_stamp < tally.start then return 0 end
    local taken = math.min(most, used_now(tally))
    tally.units = tally.units - taken
    return taken
  end
-- include: refund_tallies
-- include: refund_end
end

local function read_quota(from)
  local max, window, behind = unpack('<I7I7', ARGV[1], from)
  return { max = max, window = window, limit = max, life = window, variant = 0 }, behind
end

local function new_tally(quota)
  return { window = quota.window, variant = 0, needed_until = 0, refundable_since = 0, used = 0,
    start = 0, units = 0 }
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
