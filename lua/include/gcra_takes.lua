-- What takes do with the buckets of `gcra_buckets`, for `counter_takes`.

-- A quota in a question.
local function read_quota(from)
  local max, window, burst, life, pace_units, pace_micros, behind =
    unpack(GCRA_QUOTA, question, from)
  return { max = max, window = window, burst = burst, life = life, capacity = math.max(max, burst),
    limit = max > 0 and burst or 0, pace_units = pace_units, pace_micros = pace_micros }, behind
end

-- Whether a counter of the one can go on as a counter of the other.
local function is_same(one, other)
  return one.window == other.window and one.max == other.max and one.capacity == other.capacity
end

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
