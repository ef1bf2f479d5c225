-- Counters of the generic cell rate algorithm, for `counters`. A counter is a bucket of
-- `burst` units, and drains by `pace_units` in every `pace_micros`. Besides what all counters have
-- it says:
--   start, units   when its busy time began, and the units poured in since then
--   paced_since    the instant of the last change of its pace; 0 if no take that it may give back
--                  is older. A state adds the time from there to the last charge, and 1, to
--                  needed_until
-- In a state it is big-endian integers of 7 bytes: max, window, burst, needed_until,
-- refundable_since, start, units.
--
-- Uses   what `pace` gives

local own_mark, own_state, own_counter = GCRA_MARK, GCRA_STATE, GCRA_COUNTER

-- A quota that a counter in a state was charged under, and that is not the rule's.
local function earlier_quota(max, window, burst)
  local quota = { max = max, window = window, burst = burst, life = window, limit = burst,
    pace_units = math.max(max, 1), pace_micros = window }
  if burst > max then quota.life = time_for(burst, quota) end
  return quota
end

-- The units that have not drained at this instant.
local function used_at(counter, time)
  local quota, units, passed = counter.quota, counter.units, time - counter.start
  if passed <= 0 then return units end
  local product = passed * quota.pace_units
  if product < EXACT then
    units = units - floor(product / quota.pace_micros)
  else
    units = units - drained(passed, quota)
  end
  return units > 0 and units or 0
end

-- While the clock is behind the last charge, nothing drains.
local used_now = used_at

-- The counter at this place of a state, which `rule_quota` is expected to have charged; nil if it
-- is damaged.
local function read_counter(raw, from, stamp, rule_quota)
  if from + GCRA_COUNTER_SIZE - 1 > #raw then return nil end
  local max, window, burst, needed_until, refundable_since, start, units, behind =
    unpack(GCRA_COUNTER, raw, from)
  if start > stamp or window == 0 then return nil end
  local quota = rule_quota
  if not quota or quota.max ~= max or quota.window ~= window or quota.burst ~= burst then
    quota = earlier_quota(max, window, burst)
  end
  local paced_for = math.max(needed_until - stamp - quota.life, 0)
  -- With `paced_since`, the state does not contain `needed_until`: 0 is before any charge.
  if paced_for > 0 then needed_until = 0 end
  return { quota = quota, used = 0, needed_until = needed_until,
    refundable_since = refundable_since, start = start, units = units,
    paced_since = paced_for > 0 and math.max(stamp + 1 - paced_for, 1) or 0 }, behind
end

local function numbers_of(counter, stamp)
  local quota, needed_until = counter.quota, counter.needed_until
  if counter.paced_since > 0 then
    needed_until = stamp + quota.life + math.min(1 + stamp - counter.paced_since, TEN_YEARS)
  end
  return quota.max, quota.window, quota.burst, needed_until, counter.refundable_since,
    counter.start, counter.units
end
