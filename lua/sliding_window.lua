-- The sliding window in sub-windows: whether costs fit into every quota of one key; charges those that do.
--
-- KEYS[1]  the state, a string
-- ARGV[1]  the question, little-endian: a byte with the number of quotas, for each quota max, window in
--          microseconds and number of sub-windows; the deadline; then one or more costs, each with 2 bytes for how many takes
--          of it there are; they are answered in order, as if each had come alone, and 0 only looks. Other
--          numbers have 7 bytes.
-- ARGV[2]  expiry in milliseconds: how long a charge counts at most, and two slices of time
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: now as an integer if it is past the deadline, in microseconds since the epoch, and then nothing has
-- happened; or one string of little-endian 64-bit integers, for each row of takes that are answered alike
--   now; verdict (0 denied, 1 allowed, 2 never) and 2^2 times their number and 2^11 times the last 20 bits of the
--   deadline, so that a reply shows whose it is; retry after in microseconds or, if they were charged, the serial
--   number of the last; and for each quota, after the last: units remaining, reset after in microseconds
--
-- A tally, in big-endian integers of 7 bytes but for the last one of 2:
--   max, window, until, begun   as in all tallies
--   resolution                  the length of a sub-window
--   floor                       the running total of all costs before the oldest entry
--   entries                     their number
-- and then the entries, one for each sub-window with something in it:
--   stamp, total                when something was charged in it last, and the running total with it

-- include: question

local MARK = 248
local TALLY, TALLY_SIZE = '>I7I7I7I7I7I7I2', 44
local ENTRY, ENTRY_SIZE = '>I7I7', 14

-- What is asked nearly always, without a function and a table: one cost, one quota, and its tally alone, of
-- which no more than the oldest entry has left the window. It decides as the general way below does.
if #question == 38 and (not raw or #raw > 72) then
  local _, max, window, sub_windows, deadline, cost, takes = unpack('<BI7I7I7I7I7I2', question)
  if now > deadline then return now end
  local resolution = floor(window / sub_windows)
  if resolution == 0 then resolution = 1 end
  local mark, serial, newest, needed, begun, base, number = MARK, 0, now, 0, 0, 0, 0
  local max_before, window_before, resolution_before = max, window, resolution
  local first, stamp, total, dropped = now, now, 0, 0
  if raw then
    mark, serial, newest, max_before, window_before, needed, begun, resolution_before, base, number, first, total =
      unpack('>BI7I7I7I7I7I7I7I7I2I7I7', raw)
    if 59 + number * ENTRY_SIZE ~= #raw then
      max_before = nil
    elseif first + window <= now then
      base, dropped = total, 1
      if number > 1 then
        first, total = unpack(ENTRY, raw, 74)
        if first + window <= now then max_before = nil end
      else
        first = now
      end
    end
    stamp, total = unpack(ENTRY, raw, #raw - 13)
  end
  if takes == 1 and mark == MARK and max == max_before and window == window_before and resolution == resolution_before and now >= newest then
    local used = (total - base) % MODULUS
    local live = used > 0 and needed > now
    if not live then used = 0 end
    local verdict, retry = 1, 0
    if cost > max then
      verdict = 2
    elseif used + cost > max and cost > 0 then
      -- Every entry holds at least one unit, so one too many is gone with the oldest.
      verdict, retry = used + cost - max == 1 and 0 or nil, first + window - now
    elseif cost > 0 then
      local kept
      if live then
        kept = number - dropped
        if floor(stamp / resolution) == floor(now / resolution) then kept = kept - 1 end
      else
        if begun <= now and newest ~= now then serial = 0 end
        if begun < now then begun = now end
        base, total, dropped, kept = 0, 0, 0, 0
      end
      serial, total, used = (serial + cost) % MODULUS, (total + cost) % MODULUS, used + cost
      stamp, retry = now, serial
      local from = 60 + dropped * ENTRY_SIZE
      local head = pack('>BI7I7I7I7I7I7I7I7I2', MARK, serial, now, max, window, now + window, begun,
        resolution, base, kept + 1)
      local tail = pack(ENTRY, now, total)
      local state = kept > 0 and head .. string.sub(raw, from, from + kept * ENTRY_SIZE - 1) .. tail or head .. tail
      if raw and newest - newest % SLICE == now - now % SLICE then
        call('SET', key, state, 'KEEPTTL')
      else
        call('SET', key, state, 'PX', ARGV[2])
      end
    end
    if verdict then
      local remaining, reset = max - used, 0
      if remaining < 0 then remaining = 0 end
      if used > 0 and max > 0 then reset = stamp + window - now end
      return pack('<I8I8I8I8I8', now, verdict + 4 + deadline % 1048576 * 2048, retry, remaining, reset)
    end
  end
end

local function resolution_of(window, sub_windows)
  local resolution = floor(window / sub_windows)
  if resolution == 0 then return 1 end
  return resolution
end

-- A tally is { max, window, burst, until, begun, resolution, floor, entries, number of entries, newest stamp,
-- total }.
local function read()
  local tallies = {}
  local at = HEADER_SIZE + 1
  while at <= #raw do
    if at + TALLY_SIZE - 1 > #raw then return nil end
    local max, window, needed, begun, resolution, base, number = unpack(TALLY, raw, at)
    if is_broken(window, needed, 0) or resolution == 0 then return nil end
    local from = at + TALLY_SIZE
    at = from + number * ENTRY_SIZE
    if at - 1 > #raw then return nil end
    local stamp, total = 0, base
    if number > 0 then stamp, total = unpack(ENTRY, raw, at - ENTRY_SIZE) end
    local entries = string.sub(raw, from, at - 1)
    tallies[#tallies + 1] = { max, window, max, needed, begun, resolution, base, entries, number, stamp, total }
  end
  return tallies
end

local function ask(at)
  local max, window, sub_windows
  max, window, sub_windows, at = unpack('<I7I7I7', question, at)
  return { max, window, max, 0, 0, resolution_of(window, sub_windows) }, at
end

local function limit(quota) return quota[1] end

local function matches(tally, quota)
  return tally[2] == quota[2] and tally[6] == quota[6]
end

-- What is taken over from another algorithm has no sub-windows: it gets those of the rule.
local function fresh(quota)
  local resolution = quota[6] or resolution_of(quota[2], unpack('<I7', question, 16))
  return { quota[1], quota[2], quota[1], 0, 0, resolution, 0, '', 0, 0, 0 }
end

local function life(tally) return tally[2] end

-- How many of the oldest entries have left the window at this time, and the total with them.
local function outside(tally, time)
  local entries, left = tally[8], time - tally[2]
  local low, high, base = 0, tally[9], tally[7]
  if high == 0 or unpack('>I7', entries) > left then return 0, base end
  while low < high do
    local middle = floor((low + high) / 2)
    local stamp, total = unpack(ENTRY, entries, middle * ENTRY_SIZE + 1)
    if stamp <= left then
      low, base = middle + 1, total
    else
      high = middle
    end
  end
  return low, base
end

local function used(tally)
  local _, base = outside(tally, now)
  return (tally[11] - base) % MODULUS
end

local counts = used

local function wait(tally, most, cost)
  local entries, newest_total = tally[8], tally[11]
  local low, high, leaves = 0, tally[9], tally[10]
  while low < high do
    local middle = floor((low + high) / 2)
    local stamp, total = unpack(ENTRY, entries, middle * ENTRY_SIZE + 1)
    if (newest_total - total) % MODULUS + cost > most then
      low = middle + 1
    else
      high, leaves = middle, stamp
    end
  end
  return leaves + tally[2] - now
end

local function over_at(tally)
  if tally[11] == tally[7] then return 0 end
  return tally[10] + tally[2]
end

local function charge(tally, time, units)
  local left, base = outside(tally, time)
  local number, entries = tally[9] - left, tally[8]
  local held = (tally[11] - base) % MODULUS
  local room, lost = math.max(MOST_UNITS - held, 0), 0
  if units > room then units, lost = room, units - room end
  local last = number
  if held == 0 then
    last = 0
  elseif floor(tally[10] / tally[6]) == floor(time / tally[6]) then
    last = number - 1
  end
  local total = (tally[11] + units) % MODULUS
  local first = left * ENTRY_SIZE
  entries = string.sub(entries, first + 1, first + last * ENTRY_SIZE) .. pack(ENTRY, time, total)
  tally[7], tally[8], tally[9], tally[10], tally[11] = base, entries, last + 1, time, total
  return lost
end

local function hold(tally, time, units)
  if units > 0 then charge(tally, time, units) end
end

local function back(tally)
  if tally[10] <= now then return end
  local low, high = 0, tally[9]
  while low < high do
    local middle = floor((low + high) / 2)
    if unpack('>I7', tally[8], middle * ENTRY_SIZE + 1) < now then
      low = middle + 1
    else
      high = middle
    end
  end
  tally[8] = string.sub(tally[8], 1, low * ENTRY_SIZE) .. pack(ENTRY, now, tally[11])
  tally[9], tally[10] = low + 1, now
end

local function write(tally)
  return pack(TALLY, tally[1], tally[2], tally[4], tally[5], tally[6], tally[7], tally[9]) .. tally[8]
end

-- include: decision
