-- What takes do with the buckets of `gcra`, for `counters_take`.

-- A quota in a question.
local function read_quota(from)
  local max, window, burst, life, pace_units, pace_micros, behind =
    unpack(GCRA_QUOTA, question, from)
  return { max = max, window = window, burst = burst, life = life, limit = max > 0 and burst or 0,
    pace_units = pace_units, pace_micros = pace_micros }, behind
end

-- When this number of units at the bottom of the bucket has drained.
local function drains_at(counter, units)
  local quota = counter.quota
  local product = units * quota.pace_micros
  if product < EXACT then return counter.start + ceil(product / quota.pace_units) end
  return counter.start + time_for(units, quota)
end

local function new_counter(quota)
  return { quota = quota, used = 0, needed_until = 0, refundable_since = 0, start = now, units = 0,
    paced_since = 0 }
end

-- After a charge under another max the bucket drains at the pace of that max. It stays as full, and
-- the drained part of its current unit stays, rounded down to a microsecond of the new pace.
local function serve(counter, quota)
  local before, passed = counter.quota, max(now - counter.start, 0)
  if before.max == quota.max then return end
  local _, part = fraction(passed % quota.window, before.max, quota.window)
  counter.start, counter.units = max(now - floor(part / quota.max), 0), counter.used
  counter.paced_since = now
end

-- Microseconds until a cost fits that does not fit now.
local function wait(counter, limit, cost)
  return drains_at(counter, counter.units + cost - limit) - now
end

-- When nothing of it counts any more.
local function ends_at(counter) return drains_at(counter, counter.units) end

-- Pours units in now.
local function charge_counter(counter, units)
  local start, quota = counter.start, counter.quota
  if counter.used == 0 then
    counter.start, counter.units = now, 0
  elseif now - start >= quota.pace_micros then
    local paces = floor((now - start) / quota.pace_micros)
    counter.start = start + paces * quota.pace_micros
    counter.units = counter.units - paces * quota.pace_units
  end
  counter.units, counter.used = counter.units + units, counter.used + units
end

-- While the clock was behind, nothing drained.
local function follow_clock_back(counter)
  counter.start, counter.units = now, counter.used
  counter.paced_since = min(counter.paced_since, now)
end

-- The addition to the reply about several takes with one answer: the units that each counter holds.
local function counter_units(state)
  local text = ''
  for n = 1, state.rule.quotas do text = text .. pack(COUNTER_UNITS, state.own[n].units) end
  return text
end
