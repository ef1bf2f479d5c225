-- The sliding window in sub-windows: decides whether takes fit into every quota of their keys, and
-- charges those that do.
--
-- KEYS     1 to 64 keys of one slot, each a string: see include/tallies.lua
-- ARGV[1]  the questions: see include/read_question.lua; of a quota they say max, window in
--          microseconds and the number of sub-windows
-- ARGV[2]  the call id, a number below 2^32 that the reply repeats
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see include/reply_format.lua. Refunds: see include/refund_begin.lua.
--
-- A tally, in big-endian integers of 7 bytes but for the last one of 2:
--   max, window, needed_until, refundable_since
--                  as in all tallies
--   resolution     the length of a sub-window
--   base           the running total of all costs before the oldest entry
--   number         the number of entries
-- and then the entries, one for each sub-window with something in it:
--   stamp, total   when something was charged in it last, and the running total with it

-- include: setup

local MARK, LEASED_MARK, HEADER, HEADER_SIZE = 248, 252, '>BI7I7', 15
local TALLY, TALLY_SIZE = '>I7I7I7I7I7I7I2', 44
local ENTRY, ENTRY_SIZE = '>I7I7', 14
local TELLS_HELD, charged_after = false, nil
local tallies, serial, last_charge, anything_counts, lease_text
local single, spare = { false }, false

-- A tally's `variant` is the resolution; its `stamp` and `total` are those of the newest entry.
local function read_tally(raw, from)
  local first = from + TALLY_SIZE
  if first - 1 > #raw then return nil end
  local max, window, needed_until, refundable_since, resolution, base, number =
    unpack(TALLY, raw, from)
  local behind = first + number * ENTRY_SIZE
  if resolution == 0 or behind - 1 > #raw then return nil end
  local stamp, total = 0, base
  if number > 0 then stamp, total = unpack(ENTRY, raw, behind - ENTRY_SIZE) end
  return { max = max, window = window, variant = resolution, life = window,
    needed_until = needed_until, refundable_since = refundable_since, used = 0, base = base,
    entries = sub(raw, first, behind - 1), number = number, stamp = stamp, total = total }, behind
end

local function write_tally(tally)
  return pack(TALLY, tally.max, tally.window, tally.needed_until, tally.refundable_since,
    tally.variant, tally.base, tally.number) .. tally.entries
end

-- How many of the oldest entries are stamped at `latest` or before, or have at least `units_behind`
-- units behind them; and the running total with the last of these.
local function count_oldest(tally, latest, units_behind)
  local entries, total = tally.entries, tally.total
  local low, high, with_last, first = 0, tally.number, tally.base, 0
  while low < high do
    local stamp, with = unpack(ENTRY, entries, first * ENTRY_SIZE + 1)
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

local function used_now(tally)
  local _, with_last = count_oldest(tally, now - tally.window, MODULUS)
  return (tally.total - with_last) % MODULUS
end

local function ends_at(tally)
  if tally.total == tally.base then return 0 end
  return tally.stamp + tally.window
end

if is_refund then
-- include: refund_begin
-- include: refund_entry
  local function refund_tally(tally)
    local before, with_last = count_oldest(tally, receipt_stamp - 1, MODULUS)
    local entries, kept = {}, { sub(tally.entries, 1, before * ENTRY_SIZE) }
    for n = before, tally.number - 1 do
      local stamp, with = unpack(ENTRY, tally.entries, n * ENTRY_SIZE + 1)
      entries[#entries + 1] = { stamp, with_last, with }
      with_last = with
    end
    local taken = refund_entry(entries, most, tally.variant, tally.window, tally.number == 1)
    for _, entry in ipairs(entries) do kept[#kept + 1] = pack(ENTRY, entry[1], entry[3]) end
    tally.entries, tally.number = concat(kept), before + #entries
    return taken
  end
-- include: refund_tallies
-- include: refund_end
end

local function read_quota(from)
  local max, window, sub_windows, behind = unpack('<I7I7I7', ARGV[1], from)
  local resolution = math.max(floor(window / sub_windows), 1)
  return { max = max, window = window, limit = max, life = window, variant = resolution,
    given = window, sub_windows = sub_windows }, behind
end

local function lengthen(quota, by)
  local window = math.min(quota.given + by, TEN_YEARS)
  quota.window, quota.life = window, window
  quota.variant = math.max(floor(window / quota.sub_windows), 1)
end

local function new_tally(quota)
  return { window = quota.window, variant = quota.variant, needed_until = 0, refundable_since = 0,
    used = 0, base = 0, entries = '', number = 0, stamp = 0, total = 0 }
end

local carried_over = used_now

local function wait(tally, limit, cost)
  local before = count_oldest(tally, -1, limit - cost + 1)
  local leaves = tally.stamp
  if before < tally.number then leaves = unpack(ENTRY, tally.entries, before * ENTRY_SIZE + 1) end
  return leaves + tally.window - now
end

-- No tally holds more than 2^51 units: a rule with large costs may charge the tally of an earlier
-- one beyond that one's max.
local MAX_HELD = 2251799813685248

local function charge(tally, time, units)
  if tally.stamp > time then
    local before = count_oldest(tally, time - 1, MODULUS)
    local earlier = sub(tally.entries, 1, before * ENTRY_SIZE)
    tally.entries = earlier .. pack(ENTRY, time, tally.total)
    tally.number, tally.stamp = before + 1, time
  end
  local left, base = count_oldest(tally, time - tally.window, MODULUS)
  local stays, held = tally.number - left, (tally.total - base) % MODULUS
  local taken = math.min(units, math.max(MAX_HELD - held, 0))
  if held == 0 then
    stays = 0
  elseif floor(tally.stamp / tally.variant) == floor(time / tally.variant) then
    stays = stays - 1
  end
  local total, first = (tally.total + taken) % MODULUS, left * ENTRY_SIZE
  local earlier = sub(tally.entries, first + 1, first + stays * ENTRY_SIZE)
  tally.entries = earlier .. pack(ENTRY, time, total)
  tally.base, tally.number, tally.stamp, tally.total = base, stays + 1, time, total
  return units - taken
end

-- include: reply_format
-- include: read_values
-- include: tallies
