  -- What `joint` uses, for buckets.
  local function read_rule(from)
    local _, expiry, slice, max, window, burst, life, pace_units, pace_micros =
      unpack(GCRA_RULE, question, from)
    return { limit = burst, max = max, window = window, life = life, pace_units = pace_units,
      pace_micros = pace_micros, slice = slice, this_slice = floor(now / slice),
      expiry = format('%.0f', expiry), is_exact = max > 0 and (burst + pace_units) * pace_micros < EXACT }
  end

  local function load(key, raw, rule)
    local new = { rule = rule, serial = 0, refundable_since = now, start = now, units = 0, used = 0 }
    -- MGET answers nothing for a key of another type, too, and GET an error.
    if not raw then return rule.is_exact and pcall('GET', key) == false and new or nil end
    if #raw ~= GCRA_STATE_SIZE then return nil end
    local mark, serial, last_charge, max, window, burst, needed_until, refundable_since, start, units =
      unpack(GCRA_STATE, raw)
    if mark ~= GCRA_MARK or not rule.is_exact or max ~= rule.max or window ~= rule.window
      or burst ~= rule.limit or needed_until ~= last_charge + rule.life or last_charge > now
      or refundable_since > now or start > last_charge or units > burst + rule.pace_units then
      return nil
    end
    local used = units - floor((now - start) * rule.pace_units / rule.pace_micros)
    new.keeps_expiry = floor(last_charge / rule.slice) == rule.this_slice
    if used <= 0 then
      if last_charge == now then new.serial = serial end
      return new
    end
    local paces = floor((now - start) / rule.pace_micros)
    new.serial, new.refundable_since, new.used = serial, refundable_since, used
    new.start, new.units = start + paces * rule.pace_micros, units - paces * rule.pace_units
    return new
  end

  local function charge(state, units)
    state.serial, state.used = (state.serial + units) % MODULUS, state.used + units
    state.units = state.units + units
  end

  local function drains_after(state, units)
    return state.start + ceil(units * state.rule.pace_micros / state.rule.pace_units) - now
  end

  local function wait_for(state, cost) return drains_after(state, state.units + cost - state.rule.limit) end

  local function reset_after(state) return state.used > 0 and drains_after(state, state.units) or 0 end

  local function write(state)
    local rule = state.rule
    local text = pack(GCRA_STATE, GCRA_MARK, state.serial, now, rule.max, rule.window, rule.limit,
      now + rule.life, state.refundable_since, state.start, state.units)
    if state.keeps_expiry then return pcall('SET', state.key, text, 'KEEPTTL') end
    return pcall('SET', state.key, text, 'PX', rule.expiry)
  end
