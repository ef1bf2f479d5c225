-- Counts of a day, a week or a month of the calendar, for `core`.
--
-- A count is a string, or the mark that a reset leaves: CALENDAR_MARK, and big-endian integers of 7
-- bytes,
--   ends         when its period ends: neither the clock nor the time zone changes it
--   since        when it began to count: receipts name both
--   used         units
-- A take names its period, by the clock of its process, and the end of the next one. If the
-- server's clock is outside of both, nothing is written, and the process asks again.

-- The functions of these states. They are made only in calls that need them.
local function calendar_functions()
  local function load(key, rule, raw)
    -- In place of an expiry and a slice of time, a rule of the calendar has start and end.
    local begins, own_end = rule.expiry, rule.slice
    if not rule.max then
      rule.next_end, rule.max, rule.behind = unpack('>I7I7', question, rule.behind)
      rule.is_outside = now < begins or now >= rule.next_end
    end
    local state = { rule = rule, is_changed = false, since = now, used = 0,
      ends = now < own_end and own_end or rule.next_end }
    raw = raw or pcall('GET', key)
    if type(raw) == 'table' then
      state.error = raw.err
    elseif raw and #raw == RESET_SIZE and byte(raw) == RESET_MARK then
      state.since = max(now, unpack('>I7', raw, 2))
    elseif raw and #raw == CALENDAR_STATE_SIZE and byte(raw) == CALENDAR_MARK then
      local _, ends, since, used = unpack(CALENDAR_STATE, raw)
      local is_damaged = ends - now > TEN_YEARS or used > MAX_STORED
      if ends > now and not is_damaged then
        state.ends, state.since, state.used = ends, since, used
      end
    end
    return state
  end

  local function fits(state, cost, takes)
    local limit = state.rule.max
    local room = limit - state.used
    if cost > room or limit == 0 then return 0 end
    return cost * takes > room and floor(room / cost) or takes
  end

  local function answer(state, verdict, alike, number)
    local left = max(state.rule.max - state.used, 0)
    return pack(ANSWER, verdict, alike, number, left, state.ends - now)
  end

  local function spend(state, units)
    if units > 0 then state.used, state.is_changed = state.used + units, true end
  end

  -- Charges units beyond a reservation of this period, up to the limit with debt.
  local function owe(state, units)
    local limit_with_debt, ends = unpack('>I7I7', question, state.rule.behind)
    local is_its = ends == state.ends and ends > now
    units = is_its and max(min(units, limit_with_debt - state.used), 0) or 0
    spend(state, units)
    return answer(state, ALLOWED, 1, units)
  end

  local function answers(state, cost, takes, fitting, owes)
    if owes then return owe(state, cost) end
    local limit, text = state.rule.max, ''
    if fitting > 0 then
      spend(state, cost * fitting)
      text = answer(state, ALLOWED, fitting, state.since)
    end
    if fitting == takes then return text end
    local verdict, number = DENIED, cost > limit - state.used and state.ends - now or 0
    if cost > limit or limit == 0 then verdict, number = NEVER, 0 end
    return text .. answer(state, verdict, takes - fitting, number)
  end

  local function write(state, key)
    local text = pack(CALENDAR_STATE, CALENDAR_MARK, state.ends, state.since, state.used)
    -- Two days more: the count is still there if the clock is set back.
    local expiry = floor((state.ends - now) / MILLISECOND) + TWO_DAYS
    return pcall('SET', key, text, 'PX', format('%.0f', expiry)).err
  end

  return { load = load, fits = fits, answers = answers, write = write }
end
