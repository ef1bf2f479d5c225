-- A tally of the fixed window, in big-endian integers of 7 bytes:
--   max, window, needed_until, refundable_since
--                  as in all tallies (see `tallies`)
--   start, units   when its window began, and the units charged since then
--
-- Gives  MARK, HEADER, HEADER_SIZE, LEASED_MARK, read_tally, write_tally, used_now:
--        see `read_tallies`

local MARK, HEADER, HEADER_SIZE = FIXED_MARK, '>BI7I7', 15
local TALLY, TALLY_SIZE = '>I7I7I7I7I7I7', 42
-- Units count no longer because of leases.
local LEASED_MARK

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

local function used_now(tally)
  if tally.start + tally.window <= now then return 0 end
  return tally.units
end
