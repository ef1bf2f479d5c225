-- The fixed window: whether costs fit into every quota of one key; charges those that do.
--
-- KEYS[1]  the state, a string
-- ARGV[1]  the question, little-endian: a byte with the number of quotas, for each quota max and window in
--          microseconds, the deadline, then one or more costs, each with 2 bytes for how many takes of it there are;
--          they are answered in order, as if each had come alone, and 0 only looks. Other numbers have 7 bytes.
-- ARGV[2]  expiry in milliseconds: how long a charge counts at most, and two slices of time
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: now as an integer if it is past the deadline, in microseconds since the epoch, and then nothing has
-- happened; or one string of little-endian 64-bit integers, for each row of takes that are answered alike
--   now; verdict (0 denied, 1 allowed, 2 never) and 2^2 times their number and 2^11 times the last 20 bits of the
--   deadline, so that a reply shows whose it is; retry after in microseconds or, if they were charged, the serial
--   number of the last; and for each quota, after the last: units remaining, reset after in microseconds
--
-- A tally, in big-endian integers of 7 bytes:
--   max, window, until, begun   as in all tallies
--   start, units                when its window began, and what was charged since then

-- include: question

local MARK = 250
local TALLY, TALLY_SIZE = '>I7I7I7I7I7I7', 42

-- What is asked nearly always, without a function and a table: one cost, one quota, and its tally alone. It
-- decides as the general way below does.
if #question == 31 and (not raw or #raw == 57) then
  local _, max, window, deadline, cost, takes = unpack('<BI7I7I7I7I2', question)
  if now > deadline then return now end
  local mark, serial, newest = MARK, 0, now
  local max_before, window_before, needed, begun, start, units = max, window, 0, 0, 0, 0
  if raw then
    mark, serial, newest, max_before, window_before, needed, begun, start, units = unpack('>BI7I7I7I7I7I7I7I7', raw)
  end
  if takes == 1 and mark == MARK and max == max_before and window == window_before and now >= newest and start <= now then
    local ends = start + window
    local live = ends > now and needed > now and units > 0
    if not live then units = 0 end
    local verdict, retry = 1, 0
    if cost > max then
      verdict = 2
    elseif units + cost > max and cost > 0 then
      verdict, retry = 0, ends - now
    elseif cost > 0 then
      if not live then
        if begun <= now and newest ~= now then serial = 0 end
        if begun < now then begun = now end
        start, ends = now, now + window
      end
      units, serial = units + cost, (serial + cost) % MODULUS
      retry = serial
      local state = pack('>BI7I7I7I7I7I7I7I7', MARK, serial, now, max, window, now + window, begun, start, units)
      if raw and newest - newest % SLICE == now - now % SLICE then
        call('SET', key, state, 'KEEPTTL')
      else
        call('SET', key, state, 'PX', ARGV[2])
      end
    end
    local remaining, reset = max - units, 0
    if remaining < 0 then remaining = 0 end
    if units > 0 and max > 0 then reset = ends - now end
    return pack('<I8I8I8I8I8', now, verdict + 4 + deadline % 1048576 * 2048, retry, remaining, reset)
  end
end

local function read()
  local tallies = {}
  for at = HEADER_SIZE + 1, #raw, TALLY_SIZE do
    if at + TALLY_SIZE - 1 > #raw then return nil end
    local max, window, needed, begun, start, units = unpack(TALLY, raw, at)
    if is_broken(window, needed, start) then return nil end
    tallies[#tallies + 1] = { max, window, max, needed, begun, start, units }
  end
  return tallies
end

local function ask(at)
  local max, window
  max, window, at = unpack('<I7I7', question, at)
  return { max, window, max }, at
end

local function limit(quota) return quota[1] end

local function matches(tally, quota) return tally[2] == quota[2] end

local function fresh(quota) return { quota[1], quota[2], quota[1], 0, 0, 0, 0 } end

local function life(tally) return tally[2] end

local function used(tally)
  if tally[6] + tally[2] <= now then return 0 end
  return tally[7]
end

local counts = used

local function wait(tally) return tally[6] + tally[2] - now end

local function over_at(tally)
  if tally[7] == 0 then return 0 end
  return tally[6] + tally[2]
end

local function charge(tally, time, units)
  if tally[7] == 0 or tally[6] + tally[2] <= time then tally[6], tally[7] = time, 0 end
  units = tally[7] + units
  local held = units
  if held > MOST_UNITS then held = MOST_UNITS end
  tally[7] = held
  return units - held
end

local function hold(tally, time, units)
  if units > 0 then charge(tally, time, units) end
end

local function back(tally)
  if tally[6] > now then tally[6] = now end
end

local function write(tally)
  return pack(TALLY, tally[1], tally[2], tally[4], tally[5], tally[6], tally[7])
end

-- include: decision
