  -- What `joint` uses, for logs. Each is read where it is decided about first.
  local values = false
  local function read_rule(from)
    local _, expiry, slice, max, window = unpack(LOG_RULE, question, from)
    return { limit = max, window = window, slice = slice, this_slice = floor(now / slice),
      expiry = format('%.0f', expiry) }
  end

  local function load(key, _, rule)
    local found, window = pcall('ZRANGE', key, '-1', '-1'), rule.window
    if found.err then return nil end
    local newest = found[1]
    local new = { rule = rule, serial = 0, total = 0, base = 0, used = 0, oldest_base = 0,
      oldest_stamp = now, first_base = 0, first_stamp = now, stamp = now }
    if not newest then return new end
    if #newest ~= LOG_ENTRY_SIZE then return nil end
    local mark, total, base, oldest_base, oldest_stamp, stamp, horizon, _, serial = unpack(LOG_ENTRY, newest)
    if mark ~= LOG_MARK or horizon ~= window or stamp > now or stamp + window <= now
      or total <= oldest_base or total >= MODULUS - rule.limit or serial >= MODULUS - rule.limit then
      return nil
    end
    local first_base, first_stamp, has_left = oldest_base, oldest_stamp, oldest_stamp <= now - window
    if has_left then
      rule.edge = rule.edge or format('%.0f', now - window)
      local first = call('ZRANGEBYSCORE', key, '(' .. rule.edge, '+inf', 'LIMIT', '0', '1')[1]
      if not first or #first < LOG_ENTRY_SIZE then return nil end
      mark, _, first_base, _, _, first_stamp = unpack(LOG_ENTRY, first)
    end
    local used = total - first_base
    if mark ~= LOG_MARK or used < 0 or used > rule.limit then return nil end
    new.serial, new.total, new.used, new.stamp, new.has_left = serial, total, used, stamp, has_left
    new.oldest_base, new.oldest_stamp = oldest_base, oldest_stamp
    new.first_base, new.first_stamp, new.newest = first_base, first_stamp, newest
    new.merges = floor(stamp / 1000) == floor(now / 1000)
    new.base = new.merges and base or total
    new.keeps_expiry = floor(stamp / rule.slice) == rule.this_slice
    return new
  end

  local function charge(state, units)
    if state.merges and state.oldest_stamp == state.stamp then state.oldest_stamp = now end
    if state.merges and state.first_stamp == state.stamp then state.first_stamp = now end
    state.total, state.serial, state.used = state.total + units, state.serial + units, state.used + units
    state.stamp = now
  end

  -- Every entry holds a unit. So if just one has to leave, the oldest entry suffices.
  local function wait_for(state, cost)
    local is_one = state.used + cost == state.rule.limit + 1
    return is_one and state.first_stamp + state.rule.window - now or nil
  end

  local function reset_after(state)
    return state.used > 0 and state.stamp + state.rule.window - now or 0
  end

  local function write(state)
    local rule, key = state.rule, state.key
    -- As for one count: entries that have left are removed once the set holds more than the window
    -- can have.
    local is_full = state.has_left
      and state.total - state.oldest_base > math.min(rule.limit, rule.window / 1000)
    if is_full then state.oldest_base, state.oldest_stamp = state.first_base, state.first_stamp end
    local entry = pack(LOG_ENTRY, LOG_MARK, state.total, state.base, state.oldest_base,
      state.oldest_stamp, now, rule.window, rule.limit, state.serial)
    local written = pcall('ZADD', key, now_text, entry)
    if written ~= 1 then return written end
    if not state.keeps_expiry then
      written = pcall('PEXPIRE', key, rule.expiry)
      if type(written) == 'table' then
        -- Nothing is charged, and no key is left without an expiry.
        call('ZREM', key, entry)
        return written
      end
    end
    if state.merges then call('ZREMRANGEBYRANK', key, '-2', '-2') end
    if is_full then call('ZREMRANGEBYSCORE', key, '0', rule.edge) end
  end
