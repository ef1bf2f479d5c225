-- The fixed window: decides whether takes fit into every quota of their keys, and charges those
-- that do.
--
-- KEYS     1 to 64 keys of one slot, each a string: see include/counters.lua
-- ARGV[1]  the questions: see formats.md; of a quota they say max, and window
--          in microseconds
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see formats.md. Refunds: see refund/fixed_window.lua.
--
-- A window begins with the first take that is charged to it. The state of a key says when its
-- window began, and the units charged since then. All fields: include/counters.lua and
-- include/fixed_window.lua.

-- include: take_begin
local raw

-- A lone take in its usual case: what the loop below does, for one take of one key. All else is
-- left for that loop.
if kind % HOLDS == LONE then
  local id, _, slice, max, window, _, cost, deadline, behind =
    unpack(LONE_QUESTION, question, LONE_AT)
  -- include: lone_read
  local is_usual, mark, serial, last_charge, window_then, refundable_since, start, used =
    not raw, nil, 0, now, nil, now, now, 0
  if raw and #raw == FIXED_STATE_SIZE then
    mark, serial, last_charge, _, window_then, _, refundable_since, start, used =
      unpack(FIXED_STATE, raw)
    is_usual = mark == FIXED_MARK and window_then == window and last_charge <= now
      and refundable_since <= now and start <= last_charge and used <= max
  end
  is_usual = is_usual and now <= deadline and cost > 0 and cost <= max
  if is_usual then
    if used == 0 or start + window <= now then
      if last_charge ~= now then serial = 0 end
      refundable_since, start, used = now, now, 0
    end
    if used + cost > max then return pack(LONE_DENIED, id, DENIED_STATE, used, now, start) end
    local state = pack(FIXED_STATE, FIXED_MARK, (serial + cost) % MODULUS, now, max, window,
      now + window, refundable_since, start, used + cost)
    -- include: lone_write
    if written and written.ok then return id .. state end
  end
end

-- include: usual_read
local max, window, stamped

-- The usual case: one quota, takes of one cost, and a key that was charged under windows of this
-- length alone, or never. All else is left for the core.
-- include: usual_begin
  local raw = values[place]
  if rule_from ~= rule_at then
    quotas, expiry, slice, max, window = unpack(FIXED_RULE, question, rule_from)
    rule_at, expiry_text, this_slice = rule_from, nil, now - now % slice
    -- The states of all charges of this call under this rule have these bytes in common.
    stamped = pack(FIXED_STAMPED, now, max, window, now + window)
  end
  -- include: calendar_read

  local mark, serial, last_charge, window_then, refundable_since, start, used
  if raw and #raw == FIXED_STATE_SIZE then
    mark, serial, last_charge, _, window_then, _, refundable_since, start, used =
      unpack(FIXED_STATE, raw)
  else
    mark, serial, last_charge, window_then, refundable_since, start, used =
      not raw and FIXED_MARK, 0, now, window, now, now, 0
  end
  local is_usual = mark == FIXED_MARK and quotas == 1 and rows == 1
    and now <= deadline and cost > 0 and cost <= max
    and window_then == window and last_charge <= now and refundable_since <= now
    and start <= last_charge and used <= max

  if used == 0 or start + window <= now then
    if last_charge ~= now then serial = 0 end
    refundable_since, start, used = now, now, 0
  end
  local allowed = cost * fitting <= max - used and fitting or floor((max - used) / cost)
  local reset, answer = start + window - now, ''
  if is_usual and allowed > 0 then
    used, serial = used + cost * allowed, (serial + cost * allowed) % MODULUS
    local state = pack(FIXED_PARTS, FIXED_MARK, serial, stamped, refundable_since, start, used)
    local keeps_expiry = raw and last_charge - last_charge % slice == this_slice
    -- include: usual_write
    answer = state
    if takes > 1 then answer = pack(ANSWER, ALLOWED, allowed, serial, max - used, reset) end
  end
  if is_usual and allowed < takes then
    local wait = used + cost > max and reset or 0
    answer = answer
      .. pack(ANSWER, DENIED, takes - allowed, wait, max - used, used > 0 and reset or 0)
  end
  -- include: usual_end
-- include: core_begin
-- include: fixed_window
-- include: fixed_window_take
-- include: counters
-- include: counters_take
-- include: core
