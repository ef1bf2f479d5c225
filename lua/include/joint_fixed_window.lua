  -- What `joint` uses, for fixed windows.
  local function read_rule(from)
    local _, expiry, slice, max, window = unpack(FIXED_RULE, question, from)
    return { limit = max, window = window, slice = slice, this_slice = floor(now / slice),
      expiry = format('%.0f', expiry) }
  end

  local function load(key, raw, rule)
    local new = { rule = rule, serial = 0, refundable_since = now, start = now, used = 0 }
    -- MGET answers nothing for a key of another type, too, and GET an error.
    if not raw then return pcall('GET', key) == false and new or nil end
    if #raw ~= FIXED_STATE_SIZE then return nil end
    local mark, serial, last_charge, _, window, _, refundable_since, start, used =
      unpack(FIXED_STATE, raw)
    if mark ~= FIXED_MARK or window ~= rule.window or last_charge > now or refundable_since > now
      or start > last_charge or used > rule.limit then
      return nil
    end
    new.keeps_expiry = floor(last_charge / rule.slice) == rule.this_slice
    if used == 0 or start + window <= now then
      if last_charge == now then new.serial = serial end
      return new
    end
    new.serial, new.refundable_since, new.start, new.used = serial, refundable_since, start, used
    return new
  end

  local function charge(state, units)
    state.serial, state.used = (state.serial + units) % MODULUS, state.used + units
  end

  local function wait_for(state) return state.start + state.rule.window - now end

  local function reset_after(state) return state.used > 0 and wait_for(state) or 0 end

  local function write(state)
    local rule = state.rule
    local text = pack(FIXED_STATE, FIXED_MARK, state.serial, now, rule.limit, rule.window, now + rule.window,
      state.refundable_since, state.start, state.used)
    if state.keeps_expiry then return pcall('SET', state.key, text, 'KEEPTTL') end
    return pcall('SET', state.key, text, 'PX', rule.expiry)
  end
