-- Counters of the generic cell rate algorithm, for `counter_states`. A counter is a bucket of
-- `burst` units, and drains by `pace_units` in every `pace_micros`. Besides what all counters have
-- it says:
--   start, units   when its busy time began, and the units poured in since then
-- In a state it is big-endian integers of 7 bytes: max, window, burst, needed_until,
-- refundable_since, start, units.
--
-- Uses   what `bucket` gives

local own_mark = GCRA_MARK
-- Units count no longer because of leases.
local leased_mark, read_mark, lengthen, write_mark

-- A quota in a question.
local function read_quota(from)
  local max, window, burst, life, pace_units, pace_micros, behind =
    unpack(GCRA_QUOTA, question, from)
  return { max = max, window = window, burst = burst, life = life, capacity = math.max(max, burst),
    limit = max > 0 and burst or 0, pace_units = pace_units, pace_micros = pace_micros }, behind
end

-- A quota that a counter in a state was charged under, and that is not the rule's.
local function earlier_quota(max, window, burst)
  local a, b = math.max(max, 1), window
  while b > 0 do a, b = b, a % b end
  local quota = { max = max, window = window, burst = burst, life = window,
    capacity = math.max(max, burst), pace_units = math.max(max, 1) / a, pace_micros = window / a }
  if burst > max then quota.life = time_for(burst, quota) end
  return quota
end

-- Whether a counter of the one can go on as a counter of the other.
local function is_same(one, other)
  return one.window == other.window and one.max == other.max and one.capacity == other.capacity
end

-- The units that have not drained at that instant.
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

-- When so many units, which stand at the bottom of the bucket, have drained.
local function drains_at(counter, units)
  local quota = counter.quota
  local product = units * quota.pace_micros
  if product < EXACT then return counter.start + ceil(product / quota.pace_units) end
  return counter.start + time_for(units, quota)
end

-- The units that a new counter takes over from one of another quota: what is in the bucket at the
-- last charge, so that the new bucket does not drain it a second time.
local function carried_over(counter, stamp)
  return counter.used > 0 and used_at(counter, stamp) or 0
end

-- A counter that holds these units since that instant.
local function new_counter(quota, units, stamp)
  return { quota = quota, used = 0, needed_until = 0, refundable_since = 0, start = stamp,
    units = min(units, quota.capacity) }
end

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
  return { quota = quota, used = 0, needed_until = needed_until,
    refundable_since = refundable_since, start = start, units = units }, behind
end

local function write_counter(counter)
  local quota = counter.quota
  return pack(GCRA_COUNTER, quota.max, quota.window, quota.burst, counter.needed_until,
    counter.refundable_since, counter.start, counter.units)
end

-- Pours units in now, after what was poured in at `stamp` last. Returns how many it could not hold.
local function charge_counter(counter, units, stamp)
  local used, start, pace_micros = counter.used, counter.start, counter.quota.pace_micros
  if used == 0 then
    counter.start, counter.units = now, 0
  elseif stamp > now then
    counter.start, counter.units = now, used
  elseif now - start >= pace_micros then
    local paces = floor((now - start) / pace_micros)
    counter.start = start + paces * pace_micros
    counter.units = counter.units - paces * counter.quota.pace_units
  end
  local room = counter.quota.capacity - used
  if counter.owes or units <= room then
    counter.units, counter.used = counter.units + units, used + units
    return 0
  elseif room < 0 then
    return units
  end
  -- What another quota's takes pour in beyond what it can hold is lost. It is full to the brim, not
  -- to the last unit that fits wholly.
  counter.start, counter.units, counter.used = now, used + room, used + room
  return units - room
end

-- When nothing of it counts any more.
local function ends_at(counter) return drains_at(counter, counter.units) end

-- Microseconds until a cost fits that does not fit now.
local function wait(counter, limit, cost)
  return drains_at(counter, counter.units + cost - limit) - now
end

-- What the reply says of several takes that were charged alike: the units that each counter holds.
local function held_units(state)
  local text = ''
  for n = 1, state.rule.limiting do text = text .. pack(HELD, state.own[n].units) end
  return text
end
