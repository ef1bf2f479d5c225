-- A tally of the generic cell rate algorithm: a bucket, in big-endian integers of 7 bytes:
--   max, window, burst, needed_until, refundable_since
--                  as in all tallies (see `tallies`), with the quota's burst
--   start, units   when its busy time began, and the units poured in since then
-- It drains by `pace_units` in every `pace_micros`: max and window without their common factors.
--
-- Uses   what `drain` gives
-- Gives  MARK, HEADER, HEADER_SIZE, LEASED_MARK, read_tally, write_tally, used_at,
--        used_now: see `read_tallies`

local MARK, HEADER, HEADER_SIZE = GCRA_MARK, '>BI7I7', 15
local TALLY, TALLY_SIZE = '>I7I7I7I7I7I7I7', 49
-- Units count no longer because of leases.
local LEASED_MARK

-- The paces of tallies, by max: many keys of a call have the same.
local known_paces = {}

local function read_tally(raw, from, charged_at)
  if from + TALLY_SIZE - 1 > #raw then return nil end
  local max, window, burst, needed_until, refundable_since, start, units, behind =
    unpack(TALLY, raw, from)
  if start > charged_at or window == 0 then return nil end
  local tally = { max = max, window = window, burst = burst, variant = max, life = window,
    capacity = math.max(max, burst),
    needed_until = needed_until, refundable_since = refundable_since, used = 0, start = start,
    units = units }
  local pace = known_paces[max]
  if not pace or pace.window ~= window then
    local a, b = math.max(max, 1), window
    while b > 0 do a, b = b, a % b end
    pace = { window = window, units = math.max(max, 1) / a, micros = window / a }
    known_paces[max] = pace
  end
  tally.pace_units, tally.pace_micros = pace.units, pace.micros
  if burst > max then tally.life = time_for(burst, tally) end
  return tally, behind
end

local function write_tally(tally)
  return pack(TALLY, tally.max, tally.window, tally.burst, tally.needed_until,
    tally.refundable_since, tally.start, tally.units)
end

local function used_at(tally, time)
  local units = tally.units
  if time > tally.start then units = units - drained(time - tally.start, tally) end
  return units < 0 and 0 or units
end

-- While the clock is behind the last charge, nothing drains.
local function used_now(tally, charged_at)
  return used_at(tally, charged_at > now and charged_at or now)
end
