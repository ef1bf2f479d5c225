-- Counters of the fixed window, for `counter_states`. A window begins with the first take that is
-- charged to it. Besides what all counters have, a counter says:
--   start, units   when its window began, and the units charged since then
-- In a state it is big-endian integers of 7 bytes: max, window, needed_until, refundable_since,
-- start, units.

local own_mark, held_units = FIXED_MARK, nil
-- Units count no longer because of leases.
local leased_mark, read_mark, lengthen, write_mark

-- A quota in a question.
local function read_quota(from)
  local max, window, behind = unpack('>I7I7', question, from)
  return { max = max, window = window, limit = max, life = window }, behind
end

-- Whether a counter of the one can go on as a counter of the other.
local function is_same(one, other) return one.window == other.window end

-- The units that count now.
local function used_now(counter)
  return counter.start + counter.quota.window > now and counter.units or 0
end

-- The units that a new counter takes over from one of another quota.
local function carried_over(counter) return counter.used end

-- A counter of these units, of a window that began at that instant.
local function new_counter(quota, units, stamp)
  return { quota = quota, used = 0, needed_until = 0, refundable_since = 0, start = stamp,
    units = min(units, MAX_HELD) }
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
  return { quota = quota, used = 0, needed_until = needed_until,
    refundable_since = refundable_since, start = start, units = units }, behind
end

local function write_counter(counter)
  return pack(FIXED_COUNTER, counter.quota.max, counter.quota.window, counter.needed_until,
    counter.refundable_since, counter.start, counter.units)
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
