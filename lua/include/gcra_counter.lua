-- A counter of the generic cell rate algorithm: a bucket, in big-endian integers of 7 bytes:
--   max, window, burst, needed_until, refundable_since
--                  as in all counters (see `counter_states`), with the quota's burst
--   start, units   when its busy time began, and the units poured in since then
-- It drains by `pace_units` in every `pace_micros`: max and window without their common factors.
--
-- Uses   what `bucket` gives
-- Gives  own_mark, leased_mark, read_counter, write_counter, used_at, used_now: see `read_counters`

local own_mark = GCRA_MARK
-- Units count no longer because of leases.
local leased_mark

-- The paces of counters, by max: many keys of a call have the same.
local known_paces = {}

local function read_counter(raw, from, charged_at)
  if from + GCRA_COUNTER_SIZE - 1 > #raw then return nil end
  local max, window, burst, needed_until, refundable_since, start, units, behind =
    unpack(GCRA_COUNTER, raw, from)
  if start > charged_at or window == 0 then return nil end
  local counter = { max = max, window = window, burst = burst, variant = max, life = window,
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
  counter.pace_units, counter.pace_micros = pace.units, pace.micros
  if burst > max then counter.life = time_for(burst, counter) end
  return counter, behind
end

local function write_counter(counter)
  return pack(GCRA_COUNTER, counter.max, counter.window, counter.burst, counter.needed_until,
    counter.refundable_since, counter.start, counter.units)
end

local function used_at(counter, time)
  local units = counter.units
  if time > counter.start then units = units - drained(time - counter.start, counter) end
  return units < 0 and 0 or units
end

-- While the clock is behind the last charge, nothing drains.
local function used_now(counter, charged_at)
  return used_at(counter, charged_at > now and charged_at or now)
end
