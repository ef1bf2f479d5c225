-- A counter of the fixed window, in big-endian integers of 7 bytes:
--   max, window, needed_until, refundable_since
--                  as in all counters (see `counter_states`)
--   start, units   when its window began, and the units charged since then
--
-- Gives  own_mark, leased_mark, read_counter, write_counter, used_now: see `read_counters`

local own_mark = FIXED_MARK
-- Units count no longer because of leases.
local leased_mark

local function read_counter(raw, from, charged_at)
  if from + FIXED_COUNTER_SIZE - 1 > #raw then return nil end
  local max, window, needed_until, refundable_since, start, units, behind =
    unpack(FIXED_COUNTER, raw, from)
  if start > charged_at then return nil end
  return { max = max, window = window, variant = 0, life = window, needed_until = needed_until,
    refundable_since = refundable_since, used = 0, start = start, units = units }, behind
end

local function write_counter(counter)
  return pack(FIXED_COUNTER, counter.max, counter.window, counter.needed_until, counter.refundable_since,
    counter.start, counter.units)
end

local function used_now(counter)
  if counter.start + counter.window <= now then return 0 end
  return counter.units
end
