-- The sliding window in sub-windows: decides whether takes fit into every quota of their keys, and
-- charges those that do.
--
-- KEYS     1 to 64 keys of one slot, each a string: see include/counters.lua
-- ARGV[1]  the questions: see formats.md; of a quota they say max, window in
--          microseconds and the number of sub-windows
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see formats.md. Refunds: see refund/sliding_window.lua.
--
-- The state of a key has an entry for each sub-window with something in it: when something was
-- charged in it last, and the total of all units with it. `base` is the total before the oldest
-- entry. So the units of the window are the newest total less that of the last entry that has left.
-- All fields: include/counters.lua and include/sliding_window.lua.

-- include: take_begin
local sub, raw = string.sub, nil

-- A lone take in its usual case: what the loop below does, for one take of one key. All else is
-- left for that loop.
if kind % HOLDS == LONE then
  local id, _, slice, max, window, sub_windows, _, cost, deadline, behind =
    unpack(WINDOW_LONE, question, LONE_AT)
  -- include: lone_read
  local is_usual, mark, serial, last_charge, window_then, refundable_since, length_then =
    not raw, nil, 0, now, nil, now, nil
  local length, base, number, stamp, total = window / sub_windows, 0, 0, now, 0
  length = length < 1 and 1 or length - length % 1
  if raw and #raw > WINDOW_STATE_SIZE then
    mark, serial, last_charge, _, window_then, _, refundable_since, length_then, base, number =
      unpack(WINDOW_STATE, raw)
    stamp, total = unpack(WINDOW_ENTRY, raw, #raw - WINDOW_ENTRY_SIZE + 1)
    is_usual = mark == WINDOW_MARK and window_then == window and length_then == length
      and stamp <= last_charge and last_charge <= now and refundable_since <= now
      and total < MODULUS - max and #raw == WINDOW_STATE_SIZE + number * WINDOW_ENTRY_SIZE
  end
  is_usual = is_usual and now <= deadline and cost > 0 and cost <= max
  local left, left_total, high, middle, first_stamp = 0, base, is_usual and number or 0, 0, stamp
  while left < high do
    local of, with = unpack(WINDOW_ENTRY, raw, WINDOW_STATE_SIZE + 1 + middle * WINDOW_ENTRY_SIZE)
    if of <= now - window then
      left, left_total = middle + 1, with
    else
      high, first_stamp = middle, of
    end
    middle = (left + high) / 2
    middle = middle - middle % 1
  end
  local used = total - left_total
  -- If one unit has to leave for the take to fit, the oldest entry suffices.
  is_usual = is_usual and used >= 0 and used + cost <= max + 1
  if is_usual and used + cost > max then
    local wait, reset = first_stamp + window - now, stamp + window - now
    return pack(LONE_REPLY, id, ANSWERS, now, DENIED, 1, wait, max - used, reset)
  elseif is_usual then
    local stays = number - left
    if used == 0 then
      stays = 0
      if last_charge ~= now then serial = 0 end
      refundable_since = now
    elseif stamp - stamp % length == now - now % length then
      stays = stays - 1
    end
    serial = (serial + cost) % MODULUS
    local entries = WINDOW_STATE_SIZE + left * WINDOW_ENTRY_SIZE
    local state = pack(WINDOW_STATE, WINDOW_MARK, serial, now, max, window, now + window,
      refundable_since, length, left_total, stays + 1)
      .. sub(raw or '', entries + 1, entries + stays * WINDOW_ENTRY_SIZE)
      .. pack(WINDOW_ENTRY, now, total + cost)
    -- include: lone_write
    if written and written.ok then
      return pack(LONE_REPLY, id, ANSWERS, now, ALLOWED, 1, serial, max - used - cost, window)
    end
  end
end

-- include: usual_read
local max, window, sub_windows, length

-- The usual case: one quota, takes of one cost, and a key that was charged under
-- windows of this length alone, or never. All else is left for the core.
-- include: usual_begin
  local raw = values[place]
  if rule_from ~= rule_at then
    quotas, expiry, slice, max, window, sub_windows = unpack(WINDOW_RULE, question, rule_from)
    rule_at, expiry_text, this_slice = rule_from, nil, now - now % slice
    length = math.max(floor(window / sub_windows), 1)
  end
  -- include: calendar_read

  local mark, serial, last_charge, window_then, refundable_since, length_then, base, number
  local stamp, total = now, 0
  if raw and #raw > WINDOW_STATE_SIZE then
    mark, serial, last_charge, _, window_then, _, refundable_since, length_then, base, number =
      unpack(WINDOW_STATE, raw)
    stamp, total = unpack(WINDOW_ENTRY, raw, #raw - WINDOW_ENTRY_SIZE + 1)
  else
    mark, serial, last_charge, window_then, refundable_since, length_then, base, number =
      not raw and WINDOW_MARK, 0, now, window, now, length, 0, 0
  end
  local is_usual = mark == WINDOW_MARK and quotas == 1 and rows == 1
    and now <= deadline and cost > 0 and cost <= max
    and window_then == window and length_then == length
    and stamp <= last_charge and last_charge <= now
    and refundable_since <= now and total < MODULUS - max
    and (not raw or total > base and #raw == WINDOW_STATE_SIZE + number * WINDOW_ENTRY_SIZE)

  -- The entries that have left the window: a binary search, which begins with the oldest one.
  local left, left_total, high, middle, first_stamp = 0, base, is_usual and number or 0, 0, stamp
  while left < high do
    local of, with = unpack(WINDOW_ENTRY, raw, WINDOW_STATE_SIZE + 1 + middle * WINDOW_ENTRY_SIZE)
    if of <= now - window then
      left, left_total = middle + 1, with
    else
      high, first_stamp = middle, of
    end
    middle = floor((left + high) / 2)
  end
  local used = total - left_total
  if used == 0 then
    if last_charge ~= now then serial = 0 end
    refundable_since = now
  end
  local allowed = cost * fitting <= max - used and fitting or floor((max - used) / cost)
  -- If one unit has to leave for the next take to fit, the oldest entry suffices.
  is_usual = is_usual and used >= 0 and used <= max
    and (allowed == takes or used + allowed * cost + cost <= max + 1)

  local answer = ''
  if is_usual and allowed > 0 then
    local charged, stays = cost * allowed, number - left
    if used == 0 then
      stays = 0
    elseif floor(stamp / length) == floor(now / length) then
      stays = stays - 1
    end
    if stays == 0 then first_stamp = now end
    total, serial, used = total + charged, (serial + charged) % MODULUS, used + charged
    local entries = WINDOW_STATE_SIZE + left * WINDOW_ENTRY_SIZE
    local state = pack(WINDOW_STATE, WINDOW_MARK, serial, now, max, window, now + window, refundable_since,
      length, left_total, stays + 1) .. sub(raw or '', entries + 1, entries + stays * WINDOW_ENTRY_SIZE)
      .. pack(WINDOW_ENTRY, now, total)
    local keeps_expiry = raw and last_charge - last_charge % slice == this_slice
    -- include: usual_write
    answer = pack(ANSWER, ALLOWED, allowed, serial, max - used, window)
    stamp = now
  end
  if is_usual and allowed < takes then
    local wait = used + cost > max and first_stamp + window - now or 0
    local reset = used > 0 and math.max(stamp + window - now, 0) or 0
    answer = answer .. pack(ANSWER, DENIED, takes - allowed, wait, max - used, reset)
  end
  -- include: usual_end
-- include: core_begin
-- include: sliding_window
-- include: sliding_window_take
-- include: counters
-- include: counters_take
-- include: core
