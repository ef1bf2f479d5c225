-- Counts of permits, for `core`: the right of a request to run, of at most so many at a time.
--
-- A count of permits is a sorted set: a member for each holder, of a process and a number, scored
-- by the millisecond at which its lease ends. Takes of permits are one each, and have the number of
-- the holder as a cost; or they only look, with a cost of 0.

-- The functions of these states. They are made only in calls that need them.
local function permit_functions()
  local function load(key, rule)
    local millis = format('%.0f', floor(now / MILLISECOND))
    local in_use = pcall('ZCOUNT', key, '(' .. millis, '+inf')
    rule.permits = rule.permits or unpack('>I7', question, rule.behind)
    return { rule = rule, is_changed = false, in_use = in_use, added = {}, millis = millis,
      error = type(in_use) == 'table' and in_use.err or nil }
  end

  local function fits(state, holder, takes)
    return (holder == 0 or state.in_use < state.rule.permits) and takes or 0
  end

  -- The answer's `remaining` is the number of permits in use.
  local function answers(state, holder, takes, fitting)
    local rule, verdict = state.rule, ALLOWED
    if holder > 0 and rule.permits == 0 then
      verdict = NEVER
    elseif holder > 0 and fitting == 0 then
      verdict = DENIED
    elseif holder > 0 then
      -- In place of an expiry and a slice of time, the rule has the lease and the process.
      local lease, process, added = rule.expiry, rule.slice, state.added
      state.in_use, state.is_changed = state.in_use + 1, true
      added[#added + 1] = format('%.0f', floor(now / MILLISECOND) + 1 + lease)
      added[#added + 1] = pack('>I7I7', process, holder)
    end
    return pack(ANSWER, verdict, takes, 0, state.in_use, 0)
  end

  local function write(state, key)
    local lease, written = state.rule.expiry, pcall('ZADD', key, _G.unpack(state.added))
    if type(written) == 'table' then return written.err end
    written = pcall('PEXPIRE', key, format('%.0f', 2 * lease))
    if type(written) == 'table' then
      -- Without an expiry the permits of takes that get an error would stay: they are removed.
      for n = 2, #state.added, 2 do call('ZREM', key, state.added[n]) end
      return written.err
    end
    -- Removes permits whose lease has ended, such as those of killed processes.
    call('ZREMRANGEBYSCORE', key, '-inf', state.millis)
  end

  return { load = load, fits = fits, answers = answers, write = write }
end
