  -- What `joint` uses, for sliding windows.
  local function read_rule(from)
    local _, expiry, slice, max, window, sub_windows = unpack(WINDOW_RULE, question, from)
    return { limit = max, window = window, length = math.max(floor(window / sub_windows), 1),
      slice = slice, this_slice = floor(now / slice), expiry = format('%.0f', expiry) }
  end

  local function load(key, raw, rule)
    -- `entries` are those that stay; what is charged becomes one more.
    local new = { rule = rule, serial = 0, refundable_since = now, base = 0, total = 0, used = 0,
      entries = '', first_stamp = now, stamp = now }
    -- MGET answers nothing for a key of another type, too, and GET an error.
    if not raw then return pcall('GET', key) == false and new or nil end
    if #raw <= WINDOW_STATE_SIZE then return nil end
    local mark, serial, last_charge, _, window, _, refundable_since, length, base, number =
      unpack(WINDOW_STATE, raw)
    local stamp, total = unpack(WINDOW_ENTRY, raw, #raw - WINDOW_ENTRY_SIZE + 1)
    if mark ~= WINDOW_MARK or window ~= rule.window or length ~= rule.length
      or stamp > last_charge or last_charge > now
      or refundable_since > now or total >= MODULUS - rule.limit or total <= base
      or #raw ~= WINDOW_STATE_SIZE + number * WINDOW_ENTRY_SIZE then
      return nil
    end
    -- The entries that have left the window: a binary search, which begins with the oldest one.
    local left, high, middle, first_stamp = 0, number, 0, stamp
    while left < high do
      local entry_stamp, entry_total = unpack(WINDOW_ENTRY, raw, WINDOW_STATE_SIZE + 1 + middle * WINDOW_ENTRY_SIZE)
      if entry_stamp + window <= now then
        left, base = middle + 1, entry_total
      else
        high, first_stamp = middle, entry_stamp
      end
      middle = floor((left + high) / 2)
    end
    local used = total - base
    if used < 0 or used > rule.limit then return nil end
    new.keeps_expiry = floor(last_charge / rule.slice) == rule.this_slice
    new.base, new.total, new.used, new.stamp = base, total, used, stamp
    if used == 0 then
      if last_charge == now then new.serial = serial end
      return new
    end
    local is_same = floor(stamp / length) == floor(now / length)
    new.serial, new.refundable_since, new.first_stamp = serial, refundable_since, first_stamp
    new.entries = sub(raw, WINDOW_STATE_SIZE + left * WINDOW_ENTRY_SIZE + 1, is_same and -WINDOW_ENTRY_SIZE - 1 or -1)
    return new
  end

  local function charge(state, units)
    if state.entries == '' then state.first_stamp = now end
    state.total, state.used, state.stamp = state.total + units, state.used + units, now
    state.serial = (state.serial + units) % MODULUS
  end

  -- If one unit has to leave for the take to fit, the oldest entry suffices.
  local function wait_for(state, cost)
    local is_one = state.used + cost == state.rule.limit + 1
    return is_one and state.first_stamp + state.rule.window - now or nil
  end

  local function reset_after(state)
    return state.used > 0 and state.stamp + state.rule.window - now or 0
  end

  local function write(state)
    local rule = state.rule
    local text = pack(WINDOW_STATE, WINDOW_MARK, state.serial, now, rule.limit, rule.window, now + rule.window,
      state.refundable_since, rule.length, state.base, #state.entries / WINDOW_ENTRY_SIZE + 1)
      .. state.entries .. pack(WINDOW_ENTRY, now, state.total)
    if state.keeps_expiry then return pcall('SET', state.key, text, 'KEEPTTL') end
    return pcall('SET', state.key, text, 'PX', rule.expiry)
  end
