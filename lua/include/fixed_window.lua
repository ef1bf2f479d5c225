-- Counters of the fixed window, for `counters`. A window begins with the first take that is
-- charged to it. Besides what all counters have, a counter says:
--   start, units   when its window began, and the units charged since then
-- In a state it is big-endian integers of 7 bytes: max, window, needed_until, refundable_since,
-- start, units.

local own_mark, own_state, own_counter = FIXED_MARK, FIXED_STATE, FIXED_COUNTER

-- The units that count now.
local function used_now(counter)
  return counter.start + counter.quota.window > now and counter.units or 0
end

-- The counter at this place of a state, which `rule_quota` is expected to have charged; nil if it
-- is damaged.
local function read_counter(raw, from, stamp, rule_quota)
  if from + FIXED_COUNTER_SIZE - 1 > #raw then return nil end
  local max, window, needed_until, refundable_since, start, units, behind =
    unpack(FIXED_COUNTER, raw, from)
  if start > stamp then return nil end
  local quota = rule_quota
  if not quota or quota.window ~= window then
    quota = { max = max, window = window, limit = max, life = window }
  end
  -- A damaged state may say that it never ends.
  return { quota = quota, used = 0, needed_until = min(needed_until, stamp + window),
    refundable_since = refundable_since, start = start, units = units }, behind
end

local function numbers_of(counter)
  local quota = counter.quota
  return quota.max, quota.window, counter.needed_until, counter.refundable_since, counter.start,
    counter.units
end
