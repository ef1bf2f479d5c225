-- What takes do with the counters of `sliding_window`, for `counters_take`.

local counter_units

-- A quota in a question.
local function read_quota(from)
  local max, window, sub_windows, behind = unpack('>I7I7I7', question, from)
  return { max = max, window = window, limit = max, life = window,
    variant = math.max(floor(window / sub_windows), 1) }, behind
end

local function new_counter(quota)
  return { quota = quota, used = 0, needed_until = 0, refundable_since = 0, base = 0, entries = '',
    number = 0, stamp = 0, total = 0, left = 0, left_total = 0 }
end

-- Entries of other sub-windows stay as they are.
local function serve(counter, quota)
  if counter.quota.variant ~= quota.variant then counter.refundable_since = 0 end
end

-- Microseconds until a cost fits that does not fit now.
local function wait(counter, limit, cost)
  local before, leaves = count_oldest(counter, -1, limit - cost + 1), counter.stamp
  if before < counter.number then
    leaves = unpack(WINDOW_ENTRY, counter.entries, before * WINDOW_ENTRY_SIZE + 1)
  end
  return leaves + counter.quota.window - now
end

-- When nothing of it counts any more.
local function ends_at(counter)
  return counter.total ~= counter.base and counter.stamp + counter.quota.window or 0
end

local function charge_counter(counter, units)
  local stays, variant = counter.number - counter.left, counter.quota.variant
  local base, total = counter.left_total, (counter.total + units) % MODULUS
  if counter.total == base then
    stays = 0
  elseif floor(counter.stamp / variant) == floor(now / variant) then
    stays = stays - 1
  end
  local first = counter.left * WINDOW_ENTRY_SIZE
  local earlier = sub(counter.entries, first + 1, first + stays * WINDOW_ENTRY_SIZE)
  counter.entries = earlier .. pack(WINDOW_ENTRY, now, total)
  counter.base, counter.number, counter.stamp, counter.total = base, stays + 1, now, total
  counter.left = 0
  counter.used = counter.used + units
end

local function follow_clock_back(counter)
  if counter.stamp <= now then return end
  local before = count_oldest(counter, now - 1, MODULUS)
  local earlier = sub(counter.entries, 1, before * WINDOW_ENTRY_SIZE)
  counter.entries = earlier .. pack(WINDOW_ENTRY, now, counter.total)
  counter.number, counter.stamp = before + 1, now
end
