-- The generic cell rate algorithm: decides whether takes fit into every quota of their keys, and
-- charges those that do.
--
-- KEYS     1 to 64 keys of one slot, each a string: see include/counters.lua
-- ARGV[1]  the questions: see formats.md; of a quota they say max, window in
--          microseconds, burst, life: how long a charge counts at most, and max and window without
--          their common factors
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see formats.md. Refunds: see refund/gcra.lua.
--
-- A key is a bucket of `burst` units: a take pours its cost in, if there is room, and the bucket
-- drains `pace_units` in every `pace_micros`. Its state says since when it is busy, and what was
-- poured in since then. All fields: include/counters.lua and include/gcra.lua.

-- include: take_begin
local raw

-- A lone take in its usual case: what the loop below does, for one take of one key whose rule is as
-- it was. All else is left for that loop.
if kind % HOLDS == LONE then
  local id, _, slice, max_and_window, burst, life, pace_units, pace_micros, _, cost, deadline,
    behind = unpack(GCRA_LONE, question, LONE_AT)
  -- include: lone_read
  local is_usual, mark, serial, last_charge, known, burst_then, needed_until, refundable_since,
    start, units = not raw, nil, 0, now, nil, nil, nil, now, now, 0
  if raw and #raw == GCRA_STATE_SIZE then
    mark, serial, last_charge, known, burst_then, needed_until, refundable_since, start, units =
      unpack(GCRA_LONE_STATE, raw)
    is_usual = mark == GCRA_MARK and known == max_and_window and burst_then == burst
      and needed_until == last_charge + life and last_charge <= now and refundable_since <= now
      and start <= last_charge and units <= burst + pace_units
  end
  is_usual = is_usual and now <= deadline and cost > 0 and cost <= burst
  if is_usual then
    -- `n - n % 1` is `floor(n)`, without a call.
    local used = (now - start) * pace_units / pace_micros
    used = units - used + used % 1
    if used <= 0 then
      if last_charge ~= now then serial = 0 end
      refundable_since, start, units, used = now, now, 0, 0
    end
    if used + cost > burst then return pack(LONE_DENIED, id, DENIED_STATE, units, now, start) end
    local paces = (now - start) / pace_micros
    paces = paces - paces % 1
    start, units = start + paces * pace_micros, units - paces * pace_units + cost
    local state = pack(GCRA_LONE_STATE, GCRA_MARK, (serial + cost) % MODULUS, now, max_and_window,
      burst, now + life, refundable_since, start, units)
    -- include: lone_write
    if written and written.ok then return id .. state end
  end
end

-- include: usual_read
local ceil, max, window, burst, life = math.ceil, nil, nil, nil, nil
-- The states of all charges of this call under a rule share these, from their instant to when
-- they are needed.
local pace_units, pace_micros, is_exact, stamped

-- The usual case: one quota, takes of one cost, and a key that was charged under windows of this
-- length alone, or never. All else is left for the core.
-- include: usual_begin
  local raw = values[place]
  if rule_from ~= rule_at then
    quotas, expiry, slice, max, window, burst, life, pace_units, pace_micros =
      unpack(GCRA_RULE, question, rule_from)
    rule_at, expiry_text, this_slice = rule_from, nil, now - now % slice
    is_exact = quotas == 1 and max > 0 and (burst + pace_units) * pace_micros < EXACT
    stamped = pack(GCRA_STAMPED, now, max, window, burst, now + life)
  end
  -- include: calendar_read

  local mark, serial, last_charge, max_then, window_then, burst_then, needed_until, refundable_since,
    start, units
  if raw and #raw == GCRA_STATE_SIZE then
    mark, serial, last_charge, max_then, window_then, burst_then, needed_until, refundable_since,
      start, units = unpack(GCRA_STATE, raw)
  else
    mark, serial, last_charge, max_then, window_then, burst_then, needed_until, refundable_since,
      start, units = not raw and GCRA_MARK, 0, now, max, window, burst, now + life, now, now, 0
  end
  local is_usual = mark == GCRA_MARK and is_exact and rows == 1
    and now <= deadline and cost > 0 and cost <= burst and window_then == window
    and last_charge <= now and refundable_since <= now and start <= last_charge
  -- Charged under another max the bucket is as full, and of the unit that drains as much has
  -- drained.
  local is_same, paced_for = max_then == max, needed_until - last_charge - life
  if is_same then
    is_usual = is_usual and burst_then == burst
    if paced_for > 0 then paced_for = paced_for + now - last_charge end
  else
    paced_for = 1
    local product = (now - start) * max_then
    is_usual = is_usual and product < EXACT and burst_then <= max_then
    units, start = units - floor(product / window), math.max(now - floor(product % window / max), 0)
  end
  is_usual = is_usual and units <= burst + pace_units
    and (is_same or fitting > 0 and units + cost <= burst)

  -- The units that have not drained yet. A product that is too large to be exact is larger than all
  -- units, so that nothing is left. If nothing is left, the bucket begins afresh.
  local used = (now - start) * pace_units / pace_micros
  used = units - used + used % 1
  if used <= 0 then
    if last_charge ~= now then serial = 0 end
    refundable_since, start, units, used, paced_for = now, now, 0, 0, 0
  end
  local allowed = cost * fitting <= burst - used and fitting
    or math.max(floor((burst - used) / cost), 0)

  local answer = ''
  if is_usual and allowed > 0 then
    local charged, paces = cost * allowed, (now - start) / pace_micros
    paces = paces - paces % 1
    start, units, used = start + paces * pace_micros, units - paces * pace_units + charged, used + charged
    serial = (serial + charged) % MODULUS
    local middle = stamped
    if paced_for > 0 then
      local needed = now + life + math.min(paced_for, TEN_YEARS)
      middle = pack(GCRA_STAMPED, now, max, window, burst, needed)
    end
    local state = pack(GCRA_PARTS, GCRA_MARK, serial, middle, refundable_since, start, units)
    local keeps_expiry = raw and is_same and last_charge - last_charge % slice == this_slice
    -- include: usual_write
    answer = state
    if takes > 1 then
      local reset = start + ceil(units * pace_micros / pace_units) - now
      answer = pack(ANSWER, ALLOWED, allowed, serial, burst - used, reset)
      if allowed > 1 then answer = answer .. pack('>I7', units) end
    end
  end
  if is_usual and allowed < takes then
    local wait = used + cost > burst
      and start + ceil((units + cost - burst) * pace_micros / pace_units) - now or 0
    local reset = used > 0 and start + ceil(units * pace_micros / pace_units) - now or 0
    answer = answer .. pack(ANSWER, DENIED, takes - allowed, wait, math.max(burst - used, 0), reset)
  end
  -- include: usual_end
-- include: core_begin
-- include: pace
-- include: gcra
-- include: gcra_take
-- include: counters
-- include: counters_take
-- include: core
