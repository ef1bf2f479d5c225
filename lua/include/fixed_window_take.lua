-- What takes do with the counters of `fixed_window`, for `counters_take`.

local counter_units

-- A quota in a question.
local function read_quota(from)
  local max, window, behind = unpack('>I7I7', question, from)
  return { max = max, window = window, limit = max, life = window }, behind
end

local function new_counter(quota)
  return { quota = quota, used = 0, needed_until = 0, refundable_since = 0, start = now, units = 0 }
end

local function serve() end

-- Microseconds until a cost fits that does not fit now.
local function wait(counter) return counter.start + counter.quota.window - now end

-- When nothing of it counts any more.
local function ends_at(counter)
  return counter.units > 0 and counter.start + counter.quota.window or 0
end

local function charge_counter(counter, units)
  if counter.used == 0 then counter.start, counter.units = now, 0 end
  counter.units, counter.used = counter.units + units, counter.used + units
end

local function follow_clock_back(counter) counter.start = min(counter.start, now) end
