-- What takes do with the counters of `sliding_windows`, for `counter_takes`.

local held_units

-- A quota in a question.
local function read_quota(from)
  local max, window, sub_windows, behind = unpack('>I7I7I7', question, from)
  return { max = max, window = window, limit = max, life = window,
    variant = math.max(floor(window / sub_windows), 1) }, behind
end

-- Whether a counter of the one can go on as a counter of the other.
local function is_same(one, other)
  return one.window == other.window and one.variant == other.variant
end

-- The units that a new counter takes over from one of another quota: those that are inside of its
-- window, too.
local function carried_over(counter, _, quota)
  local _, with_last = count_oldest(counter, now - min(quota.window, counter.quota.window), MODULUS)
  return (counter.total - with_last) % MODULUS
end

-- A counter of these units, which were charged at that instant.
local function new_counter(quota, units, stamp)
  local counter = { quota = quota, used = 0, needed_until = 0, refundable_since = 0, base = 0,
    entries = '', number = 0, stamp = 0, total = 0 }
  if units > 0 then
    units = min(units, MAX_HELD)
    counter.entries, counter.number = pack(WINDOW_ENTRY, stamp, units), 1
    counter.stamp, counter.total = stamp, units
  end
  return counter
end

-- Holds the newest units. Returns how many of the oldest it could not hold.
local function charge_counter(counter, units)
  local window, variant = counter.quota.window, counter.quota.variant
  if counter.stamp > now then
    -- Units that were charged in the future get the stamp of now.
    local before = count_oldest(counter, now - 1, MODULUS)
    local earlier = sub(counter.entries, 1, before * WINDOW_ENTRY_SIZE)
    counter.entries = earlier .. pack(WINDOW_ENTRY, now, counter.total)
    counter.number, counter.stamp = before + 1, now
  end
  local left, base = count_oldest(counter, now - window, MODULUS)
  local lost = max((counter.total - base) % MODULUS + units - MAX_HELD, 0)
  if lost > 0 then left, base = count_oldest(counter, now - window, MAX_HELD - units) end
  local stays, total = counter.number - left, (counter.total + units) % MODULUS
  if counter.total == base then
    stays = 0
  elseif floor(counter.stamp / variant) == floor(now / variant) then
    stays = stays - 1
  end
  if (total - base) % MODULUS > MAX_HELD then base = (total - MAX_HELD) % MODULUS end
  local first = left * WINDOW_ENTRY_SIZE
  local earlier = sub(counter.entries, first + 1, first + stays * WINDOW_ENTRY_SIZE)
  counter.entries = earlier .. pack(WINDOW_ENTRY, now, total)
  counter.base, counter.number, counter.stamp, counter.total = base, stays + 1, now, total
  counter.used = counter.used + units
  return lost
end

-- When nothing of it counts any more.
local function ends_at(counter)
  return counter.total ~= counter.base and counter.stamp + counter.quota.window or 0
end

-- Microseconds until a cost fits that does not fit now.
local function wait(counter, limit, cost)
  local before, leaves = count_oldest(counter, -1, limit - cost + 1), counter.stamp
  if before < counter.number then
    leaves = unpack(WINDOW_ENTRY, counter.entries, before * WINDOW_ENTRY_SIZE + 1)
  end
  return leaves + counter.quota.window - now
end
