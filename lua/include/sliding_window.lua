-- Counters of the sliding window in sub-windows, for `counters`. Besides what all counters
-- have, a counter says:
--   base            the running total of all costs before the oldest entry
--   number, entries the entries, one for each sub-window with something in it, and how many
--   stamp, total    the newest entry: when something was charged in it last, and the running total
--                   with it
--   left, left_total  how many of the oldest entries have left the window, and the total with these
-- In a state it is big-endian integers of 7 bytes but for the last one of 2: max, window,
-- needed_until, refundable_since, length of a sub-window, base, number; and then the entries: stamp
-- and total of each. A quota's `variant` is the length of a sub-window.

local own_mark, own_state, own_counter = WINDOW_MARK, WINDOW_STATE, WINDOW_COUNTER

-- How many of the oldest entries are stamped at `latest` or before, or have at least `units_behind`
-- units behind them; and the running total with the last of these.
local function count_oldest(counter, latest, units_behind)
  local entries, total = counter.entries, counter.total
  local low, high, with_last, first = 0, counter.number, counter.base, 0
  while low < high do
    local stamp, with = unpack(WINDOW_ENTRY, entries, first * WINDOW_ENTRY_SIZE + 1)
    if stamp <= latest or (total - with) % MODULUS >= units_behind then
      low, with_last = first + 1, with
    else
      high = first
    end
    -- It begins with the oldest entry: that is rarely one of them.
    first = floor((low + high) / 2)
  end
  return low, with_last
end

-- The units that count now.
local function used_now(counter)
  local left, left_total = count_oldest(counter, now - counter.quota.window, MODULUS)
  counter.left, counter.left_total = left, left_total
  return (counter.total - left_total) % MODULUS
end

-- The counter at this place of a state, which `rule_quota` is expected to have charged; nil if it
-- is damaged.
local function read_counter(raw, from, charged_at, rule_quota)
  local first = from + WINDOW_COUNTER_SIZE
  if first - 1 > #raw then return nil end
  local max, window, needed_until, refundable_since, variant, base, number =
    unpack(WINDOW_COUNTER, raw, from)
  local behind = first + number * WINDOW_ENTRY_SIZE
  if variant == 0 or variant > window or behind - 1 > #raw then return nil end
  local stamp, total = 0, base
  if number > 0 then stamp, total = unpack(WINDOW_ENTRY, raw, behind - WINDOW_ENTRY_SIZE) end
  if stamp > charged_at or base >= MODULUS or total >= MODULUS then return nil end
  local quota = rule_quota
  if not quota or quota.window ~= window or quota.variant ~= variant then
    quota = { max = max, window = window, limit = max, life = window, variant = variant }
  end
  -- A damaged state may say that it never ends.
  return { quota = quota, used = 0, needed_until = min(needed_until, charged_at + window),
    refundable_since = refundable_since, base = base, entries = sub(raw, first, behind - 1),
    number = number, stamp = stamp, total = total, left = 0, left_total = base }, behind
end

local function numbers_of(counter)
  local quota = counter.quota
  return quota.max, quota.window, counter.needed_until, counter.refundable_since, quota.variant,
    counter.base, counter.number
end
