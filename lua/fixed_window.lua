-- The fixed window: whether takes fit into every quota of their keys; charges those that do.
--
-- KEYS     1 to 64 keys of one slot, each a string: see include/tallies.lua
-- ARGV[1]  the questions: see include/question.lua; of a quota they say max and window in
--          microseconds
-- ARGV[2]  the call's mark, a number below 2^48 that the reply repeats
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see include/reply.lua. Refunds: see include/refund.lua.
--
-- A tally, in big-endian integers of 7 bytes:
--   max, window, needed, begun   as in all tallies
--   start, units                 when its window began, and what was charged since then

-- include: call

local MARK, HEADER, HEADER_SIZE = 250, '>BI7I7', 15
local TALLY, TALLY_SIZE = '>I7I7I7I7I7I7', 42
local POURS, charged_later = false, nil
local tallies, serial, newest, is_live
local single, spare = { false }, false

local function read_tally(raw, from, charged_at)
  if from + TALLY_SIZE - 1 > #raw then return nil end
  local max, window, needed, begun, start, units, behind = unpack(TALLY, raw, from)
  if start > charged_at then return nil end
  return { max = max, window = window, like = 0, life = window, needed = needed, begun = begun,
    used = 0, start = start, units = units }, behind
end

local function write_tally(tally)
  return pack(TALLY, tally.max, tally.window, tally.needed, tally.begun, tally.start,
    tally.units)
end

local function over_at(tally)
  if tally.units == 0 then return 0 end
  return tally.start + tally.window
end

local function count(tally)
  if tally.start + tally.window <= now then return 0 end
  return tally.units
end

if is_refund then
-- include: refund
  local function take_back(tally)
    if receipt_stamp < tally.start then return 0 end
    local taken = math.min(most, count(tally))
    tally.units = tally.units - taken
    return taken
  end
-- include: give_back
-- include: refunded
end

local function read_quota(from)
  local max, window, behind = unpack('<I7I7', ARGV[1], from)
  return { max = max, window = window, limit = max, life = window, like = 0 }, behind
end

local function new_tally(quota)
  return { window = quota.window, like = 0, needed = 0, begun = 0, used = 0, start = 0, units = 0 }
end

local carry = count

local function wait(tally) return tally.start + tally.window - now end

-- No tally holds more than 2^51: a rule that charges much may feed the tally of an earlier one.
local function pour(tally, time, units)
  if tally.start > time then tally.start = time end
  if tally.units == 0 or tally.start + tally.window <= time then
    tally.start, tally.units = time, 0
  end
  local lost = tally.units + units - 2251799813685248
  if lost < 0 then lost = 0 end
  tally.units = tally.units + units - lost
  return lost
end

-- include: reply
-- include: values
-- include: tallies
