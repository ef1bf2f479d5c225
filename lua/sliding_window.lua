-- The sliding window in sub-windows: decides whether takes fit into every quota of their keys, and
-- charges those that do.
--
-- KEYS     1 to 64 keys of one slot, each a string: see include/tallies.lua and
--          include/sliding_window_tally.lua
-- ARGV[1]  the questions: see include/read_question.lua; of a quota they say max, window in
--          microseconds and the number of sub-windows
-- ARGV[2]  the call id, which the reply repeats: a number below 2^32, or 2^32 more if a key stands
--          in KEYS more than once
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see include/reply_format.lua. Refunds: see refund/sliding_window.lua.

-- include: setup
-- include: sliding_window_tally

local TELLS_HELD = false

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

local function ends_at(tally)
  if tally.total == tally.base then return 0 end
  return tally.stamp + tally.window
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
