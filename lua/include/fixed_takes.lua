-- What takes do with the counters of `fixed_windows`, for `counter_takes`.

local held_units

-- A quota in a question.
local function read_quota(from)
  local max, window, behind = unpack('>I7I7', question, from)
  return { max = max, window = window, limit = max, life = window }, behind
end

-- Whether a counter of the one can go on as a counter of the other.
local function is_same(one, other) return one.window == other.window end

-- The units that a new counter takes over from one of another quota.
local function carried_over(counter) return counter.used end

-- A counter of these units, of a window that began at that instant.
local function new_counter(quota, units, stamp)
  return { quota = quota, used = 0, needed_until = 0, refundable_since = 0, start = stamp,
    units = min(units, MAX_HELD) }
end

-- Returns how many units it could not hold.
local function charge_counter(counter, units)
  counter.start = min(counter.start, now)
  if counter.units == 0 or counter.start + counter.quota.window <= now then
    counter.start, counter.units = now, 0
  end
  local lost = max(counter.units + units - MAX_HELD, 0)
  counter.units = counter.units + units - lost
  counter.used = counter.units
  return lost
end

-- When nothing of it counts any more.
local function ends_at(counter)
  return counter.units > 0 and counter.start + counter.quota.window or 0
end

-- Microseconds until a cost fits that does not fit now.
local function wait(counter) return counter.start + counter.quota.window - now end
