-- The generic cell rate algorithm: whether costs fit into every quota of one key; charges those that do.
--
-- KEYS[1]  the state, a string
-- ARGV[1]  the question, little-endian: a byte with the number of quotas, for each quota max, window in
--          microseconds, burst, and max and window without their common factors; the deadline; then one or more
--          costs, each with 2 bytes for how many takes of it there are; they are answered in order, as if each
--          had come alone, and 0 only looks. Other numbers have 7 bytes.
-- ARGV[2]  expiry in milliseconds: how long a charge counts at most, and two slices of time
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: now as an integer if it is past the deadline, in microseconds since the epoch, and then nothing has
-- happened; or one string of little-endian 64-bit integers, for each row of takes that are answered alike
--   now; verdict (0 denied, 1 allowed, 2 never) and 2^2 times their number and 2^11 times the last 20 bits of the
--   deadline, so that a reply shows whose it is; retry after in microseconds or, if they were charged, the serial
--   number of the last; and for each quota, after the last: units remaining, reset after in microseconds, and where
--   several were charged the units poured into its bucket
--
-- A tally is a bucket, in big-endian integers of 7 bytes:
--   max, window, burst, until, begun   as in all tallies, with the quota's burst
--   start, units                       when its busy time began, and what was poured in since then; a start of
--                                      0 says that it does not drain, since it is what another algorithm
--                                      counted

-- include: question

local MARK = 249
local TALLY, TALLY_SIZE = '>I7I7I7I7I7I7I7', 49

-- What is asked nearly always, without a function and a table: one cost, one quota, and its tally alone. It
-- decides as the general way below does.
if #question == 52 and (not raw or #raw == 64) then
  local _, max, window, burst, pace_units, pace_micros, deadline, cost, takes = unpack('<BI7I7I7I7I7I7I7I2', question)
  if now > deadline then return now end
  local mark, serial, newest = MARK, 0, now
  local max_before, window_before, burst_before, needed, begun, start, units = max, window, burst, 0, 0, now, 0
  if raw then
    mark, serial, newest, max_before, window_before, burst_before, needed, begun, start, units =
      unpack('>BI7I7I7I7I7I7I7I7I7', raw)
  end
  if takes == 1 and mark == MARK and max == max_before and window == window_before and burst == burst_before and now >= newest
    and start <= now and max > 0 and (start > 0 or units == 0) and pace_units * pace_micros < 9007199254740992 then
    local paces = floor((now - start) / pace_micros)
    local start_now, units_now = start + paces * pace_micros, units - paces * pace_units
    local used = units_now - floor((now - start_now) * pace_units / pace_micros)
    local live = used > 0 and needed > now
    if not live then used = 0 end
    local verdict, retry = 1, 0
    if cost > burst then
      verdict = 2
    elseif used + cost > burst and cost > 0 then
      verdict = 0
      local has_to_drain = units + cost - burst
      local whole = floor(has_to_drain / pace_units)
      retry = start + whole * pace_micros - now
        + math.ceil((has_to_drain - whole * pace_units) * pace_micros / pace_units)
    elseif cost > 0 then
      local life = window
      if burst > max then
        local whole = floor(burst / pace_units)
        life = whole * pace_micros + math.ceil((burst - whole * pace_units) * pace_micros / pace_units)
      end
      if live then
        start, units = start_now, units_now
      else
        if begun <= now and newest ~= now then serial = 0 end
        if begun < now then begun = now end
        start, units = now, 0
      end
      used, units, serial = used + cost, units + cost, (serial + cost) % MODULUS
      retry = serial
      local state =
        pack('>BI7I7I7I7I7I7I7I7I7', MARK, serial, now, max, window, burst, now + life, begun, start, units)
      if raw and newest - newest % SLICE == now - now % SLICE then
        call('SET', key, state, 'KEEPTTL')
      else
        call('SET', key, state, 'PX', ARGV[2])
      end
    end
    local remaining, reset = burst - used, 0
    if remaining < 0 then remaining = 0 end
    if used > 0 and burst > 0 then
      local whole = floor(units / pace_units)
      reset = start + whole * pace_micros - now
        + math.ceil((units - whole * pace_units) * pace_micros / pace_units)
    end
    return pack('<I8I8I8I8I8', now, verdict + 4 + deadline % 1048576 * 2048, retry, remaining, reset)
  end
end

-- include: pace

-- A tally is { max, window, burst, until, begun, start, units }, and behind that its pace.
local function read()
  local tallies = {}
  for at = HEADER_SIZE + 1, #raw, TALLY_SIZE do
    if at + TALLY_SIZE - 1 > #raw then return nil end
    tallies[#tallies + 1] = { unpack(TALLY, raw, at) }
    local tally = tallies[#tallies]
    tally[8] = nil
    if is_broken(tally[2], tally[4], tally[6]) then return nil end
  end
  return tallies
end

local function ask(at)
  local max, window, burst, units, micros
  max, window, burst, units, micros, at = unpack('<I7I7I7I7I7', question, at)
  return { max, window, burst, 0, 0, 0, 0, units, micros }, at
end

local function limit(quota)
  if quota[1] == 0 then return 0 end
  return quota[3]
end

local function is_still(tally) return tally[6] == 0 and tally[7] > 0 end

local function matches(tally, quota)
  return tally[1] == quota[1] and tally[2] == quota[2] and not is_still(tally)
end

local function paced(tally)
  if not tally[8] then tally[8], tally[9] = pace_of(tally[1], tally[2]) end
  return tally[8], tally[9]
end

local function fresh(quota)
  return { quota[1], quota[2], quota[3], 0, 0, 0, 0, quota[8], quota[9] }
end

local function capacity(tally)
  if is_still(tally) then return MOST_UNITS end
  if tally[3] > tally[1] then return tally[3] end
  return tally[1]
end

local function life(tally)
  if is_still(tally) then return tally[2] end
  return time_for(capacity(tally), paced(tally))
end

local function used_at(tally, time)
  local units = tally[7]
  if time > tally[6] and not is_still(tally) then
    units = units - drained(time - tally[6], paced(tally))
  end
  if units < 0 then return 0 end
  return units
end

local function used(tally) return used_at(tally, now) end

-- Nothing that has drained drains there again.
local function counts(tally, newest)
  if used(tally) == 0 then return 0 end
  return used_at(tally, newest)
end

local function wait(tally, most, cost)
  local has_to_drain = tally[7] + cost - most
  return tally[6] + time_for(has_to_drain, paced(tally)) - now
end

local function over_at(tally)
  if is_still(tally) then return math.huge end
  return tally[6] + time_for(tally[7], paced(tally))
end

local function charge(tally, time, units)
  local before = used_at(tally, time)
  if before == 0 then
    tally[6], tally[7] = time, 0
  elseif not is_still(tally) then
    local pace_units, pace_micros = paced(tally)
    local paces = floor((time - tally[6]) / pace_micros)
    tally[6], tally[7] = tally[6] + paces * pace_micros, tally[7] - paces * pace_units
  end
  local room = capacity(tally) - before
  if room < 0 then room = 0 end
  local poured = units
  if poured > room then poured = room end
  tally[7] = tally[7] + poured
  return units - poured
end

local function hold(tally, _, units) tally[7] = units end

local function back(tally, newest)
  if is_still(tally) then return end
  tally[7] = used_at(tally, newest)
  tally[6] = now
end

local function write(tally)
  return pack(TALLY, tally[1], tally[2], tally[3], tally[4], tally[5], tally[6], tally[7])
end

-- include: decision
