-- The usual case of a count of the calendar: it stands behind a count of windows, or alone, and its
-- period has not ended. The first take of a period is left for the core.
--
-- Uses   rows, takes, at, and others of the usual case, in its loop
-- Gives  rows: 1 if this lets the count of windows be in its usual case, too
--        fitting: how many takes have room here
--        period: the place of the key, if it is in its usual case; and what its state says
--        next_place
local fitting, period, next_place, period_from, period_cost = takes, nil, place + 1, rule_from, cost
local period_max, ends, since, period_used
if rows == JOINT + 2 then
  period_from, _, period_cost, _, _, at = unpack(RECORD, question, at)
  next_place = place + 2
end
if rows == JOINT + 1 or rows == JOINT + 2 then
  local last, number, begins, next_ends, mark = next_place - 1, nil, nil, nil, nil
  number, begins, _, next_ends, period_max = unpack(CALENDAR_RULE, question, period_from)
  local state = number == CALENDAR and (values and values[last] or pcall('GET', keys[last]))
  if state and #state == CALENDAR_STATE_SIZE then
    mark, ends, since, period_used = unpack(CALENDAR_STATE, state)
    local is_usual = mark == CALENDAR_MARK and begins <= now and now < next_ends and now < ends
      and ends - now <= TEN_YEARS and period_used <= MAX_HELD
      and period_cost > 0 and period_cost <= period_max
    local room = period_max - period_used
    if period_cost * takes > room then fitting = math.max(floor(room / period_cost), 0) end
    -- Where nothing is charged, only this tells that the other key holds a value of another type.
    local another = fitting == 0 and values and not values[place] and pcall('GET', keys[place])
    if is_usual and not another then
      period = last
      if last > place then rows = 1 end
    end
  end
end
