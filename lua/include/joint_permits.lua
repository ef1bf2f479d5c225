  -- What `joint` uses for counts of permits: see `permit_states`.
  local millis

  local function read_permits(from)
    local _, lease, process, max = unpack('>BI7I7I7', question, from)
    millis = millis or format('%.0f', floor(now / 1000))
    return { limit = max, is_permits = true, process = process,
      ends_at = format('%.0f', floor(now / 1000) + 1 + lease), expiry = format('%.0f', 2 * lease) }
  end

  local function load_permits(key, rule)
    local held = pcall('ZCOUNT', key, '(' .. millis, '+inf')
    return type(held) == 'number' and { rule = rule, used = held, holders = {} } or nil
  end

  local function hold(state, holder)
    local holders = state.holders
    holders[#holders + 1] = state.rule.ends_at
    holders[#holders + 1] = pack('>I7I7', state.rule.process, holder)
    state.used = state.used + 1
  end

  local function write_permits(state)
    local added = pcall('ZADD', state.key, _G.unpack(state.holders))
    if type(added) == 'table' then return added end
    added = pcall('PEXPIRE', state.key, state.rule.expiry)
    if type(added) == 'table' then
      -- No permit is left that nobody has.
      for n = 2, #state.holders, 2 do call('ZREM', state.key, state.holders[n]) end
      return added
    end
    call('ZREMRANGEBYSCORE', state.key, '-inf', millis)
  end
