-- The generic cell rate algorithm: decides whether takes fit into every quota of their keys, and
-- charges those that do.
--
-- KEYS     1 to 64 keys of one slot, each a string: see include/tallies.lua and
--          include/gcra_tally.lua
-- ARGV[1]  the questions: see include/read_question.lua; of a quota they say max, window in
--          microseconds, burst, life: how long a charge counts at most, and max and window without
--          their common factors
-- ARGV[2]  the call id, which the reply repeats: a number below 2^32, or 2^32 more if a key stands
--          in KEYS more than once
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see include/reply_format.lua. Refunds: see refund/gcra.lua.

-- include: setup

local STATE, STATE_SIZE = '>BI7I7I7I7I7I7I7I7I7', 64
local QUOTA = '<I7I7I7I7I7I7'
-- Products below this are exact.
local EXACT = 9007199254740992

local function read_quota(from)
  local max, window, burst, life, pace_units, pace_micros, behind = unpack(QUOTA, ARGV[1], from)
  return { max = max, window = window, burst = burst, variant = max, life = life,
    capacity = math.max(max, burst),
    limit = max > 0 and burst or 0, pace_units = pace_units, pace_micros = pace_micros }, behind
end

-- include: reply_format
-- include: read_values

-- The fast path. It answers the usual keys: the rule has one quota, the bucket, if any, was charged
-- under this quota alone, and the takes are all allowed, or all denied. All other keys are left for
-- `tallies`.
--
-- Without it a call takes the server 1.25 to 1.3 times as long for one take of one key, 1.6 times for
-- 64 takes of it, and 1.4 to 1.6 times for one take of each of 64 keys.
--
-- Calls in which a key stands more than once keep their order without it.
local keys_left = repeats
do
  local usual, max, window, burst, life, limit, pace_units, pace_micros, is_exact

  for place = 1, repeats and 0 or #KEYS do
-- include: read_question
    local quota, is_usual = quotas[1], rows == 1 and cost > 0 and now <= deadline
    if quota ~= usual then
      usual, max, window, burst, life = quota, quota.max, quota.window, quota.burst, quota.life
      limit, pace_units, pace_micros = quota.limit, quota.pace_units, quota.pace_micros
      is_exact = number_of_quotas == 1 and limit * pace_micros < EXACT
    end
    local raw = values and values[place] or pcall('GET', KEYS[place])
    local serial, last_charge, refundable_since, start, units, units_now = 0, -1, now, now, 0, 0
    is_usual = is_usual and is_exact and cost * takes <= limit
    if raw and is_usual then
      local mark, max_then, window_then, burst_then, needed_until
      if #raw == STATE_SIZE then
        mark, serial, last_charge, max_then, window_then, burst_then, needed_until,
          refundable_since, start, units = unpack(STATE, raw)
      end
      is_usual = mark == GCRA_MARK and max_then == max and window_then == window
        and burst_then == burst and needed_until == last_charge + life and last_charge <= now
        and refundable_since <= now and start <= last_charge and (now - start) * pace_units < EXACT
      units_now = units - floor((now - start) * pace_units / pace_micros)
      if is_usual and (units_now <= 0 or needed_until <= now) then
        -- Nothing counts: the bucket begins afresh.
        if last_charge ~= now then serial = 0 end
        refundable_since, start, units, units_now, last_charge = now, now, 0, 0, -1
      end
    end

    local charged, number, verdict = cost * takes, 0, ALLOWED
    if is_usual and units_now + charged <= limit then
      local paces = floor((now - start) / pace_micros)
      start, units = start + paces * pace_micros, units - paces * pace_units + charged
      units_now, serial = units_now + charged, (serial + charged) % MODULUS
      number = serial
      local state = pack(STATE, GCRA_MARK, serial, now, max, window, burst, now + life,
        refundable_since, start, units)
      local written
      if floor(last_charge / slice) == floor(now / slice) then
        written = pcall('SET', KEYS[place], state, 'KEEPTTL')
      else
        expiry_text = expiry_text or format('%.0f', expiry)
        written = pcall('SET', KEYS[place], state, 'PX', expiry_text)
      end
      is_usual = not written.err
    elseif is_usual then
      is_usual = units_now + cost > limit
      charged, verdict = 0, DENIED
      number = start + ceil((units + cost - limit) * pace_micros / pace_units) - now
    end
    if is_usual then
      local reset = units_now > 0 and start + ceil(units * pace_micros / pace_units) - now or 0
      local answer = pack(ANSWER, verdict, takes, number, limit - units_now, reset)
      if charged > cost then answer = answer .. pack(HELD, units) end
      replies[place + 1] = answer
    else
      keys_left, replies[place + 1], at = true, false, at + (rows - 1) * ROW_SIZE
    end
  end
end
if not keys_left then return concat(replies) end

-- include: drain
-- include: gcra_tally

local TELLS_HELD = true
-- Units count no longer because of leases.
local lengthen

local function ends_at(tally) return tally.start + time_for(tally.units, tally) end

local function new_tally(quota)
  return { max = quota.max, window = quota.window, burst = quota.burst, variant = quota.max,
    capacity = quota.capacity,
    life = quota.life, needed_until = 0, refundable_since = 0, used = 0, start = 0, units = 0,
    pace_units = quota.pace_units, pace_micros = quota.pace_micros }
end

-- The bucket's units at that instant: the new rule's bucket does not drain them a second time.
local function carried_over(tally, charged_at)
  if used_now(tally, charged_at) == 0 then return 0 end
  return used_at(tally, charged_at)
end

local function wait(tally, limit, wanted)
  return tally.start + time_for(tally.units + wanted - limit, tally) - now
end

local function charge(tally, time, units, charged_at)
  -- What counts now is known.
  local before = time == now and tally.used or used_at(tally, time)
  if before == 0 then
    tally.start, tally.units = time, 0
  elseif charged_at > time then
    tally.start, tally.units = time, before
  elseif time - tally.start >= tally.pace_micros then
    local paces = floor((time - tally.start) / tally.pace_micros)
    tally.start = tally.start + paces * tally.pace_micros
    tally.units = tally.units - paces * tally.pace_units
  end
  -- What another quota's takes charge in beyond what it can hold is lost.
  local room = tally.capacity - before
  local held = units
  if held > room and room >= 0 then
    -- It is full to the brim, not to the last unit that fits wholly.
    tally.start, tally.units, tally.used = time, before + room, before + room
    return units - room
  elseif held > room then
    held = 0
  end
  tally.units, tally.used = tally.units + held, before + held
  return units - held
end

-- include: tallies
