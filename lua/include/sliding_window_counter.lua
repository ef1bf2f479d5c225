-- A counter of the sliding window in sub-windows, in big-endian integers of 7 bytes but for the
-- last one of 2:
--   max, window, needed_until, refundable_since
--                  as in all counters (see `counter_states`)
--   resolution     the length of a sub-window
--   base           the running total of all costs before the oldest entry
--   number         the number of entries
-- and then the entries, one for each sub-window with something in it:
--   stamp, total   when something was charged in it last, and the running total with it
--
-- Gives  own_mark, leased_mark, read_counter, write_counter, used_now: see `read_counters`;
--        count_oldest

local own_mark, leased_mark = WINDOW_MARK, LEASED_WINDOW_MARK

-- A counter's `variant` is the resolution; its `stamp` and `total` are those of the newest entry.
local function read_counter(raw, from)
  local first = from + WINDOW_COUNTER_SIZE
  if first - 1 > #raw then return nil end
  local max, window, needed_until, refundable_since, resolution, base, number =
    unpack(WINDOW_COUNTER, raw, from)
  local behind = first + number * WINDOW_ENTRY_SIZE
  if resolution == 0 or resolution > window or behind - 1 > #raw then return nil end
  local stamp, total = 0, base
  if number > 0 then stamp, total = unpack(WINDOW_ENTRY, raw, behind - WINDOW_ENTRY_SIZE) end
  if base >= MODULUS or total >= MODULUS then return nil end
  return { max = max, window = window, variant = resolution, life = window,
    needed_until = needed_until, refundable_since = refundable_since, used = 0, base = base,
    entries = sub(raw, first, behind - 1), number = number, stamp = stamp, total = total }, behind
end

local function write_counter(counter)
  return pack(WINDOW_COUNTER, counter.max, counter.window, counter.needed_until, counter.refundable_since,
    counter.variant, counter.base, counter.number) .. counter.entries
end

-- include: window_entries

local function used_now(counter)
  local _, with_last = count_oldest(counter, now - counter.window, MODULUS)
  return (counter.total - with_last) % MODULUS
end
