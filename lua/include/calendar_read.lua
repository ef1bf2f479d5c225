-- Reads the usual case of a count of the calendar, alone or after a count of windows.
--
-- Uses   rows, takes, at, and others of the usual case, in its loop
-- Gives  rows: 1 if the count of windows may be in its usual case, too
--        fitting: how many takes have room here
--        period: the place of the key, if it is in its usual case; and what its state says
--        next_place
local fitting, period, next_place, period_from, period_cost = takes, nil, place + 1, rule_from, cost
local is_new_period, period_max, ends, since, period_used = false, nil, nil, nil, nil
if rows == JOINT + 2 then
  period_from, _, _, period_cost, _, at = unpack(RECORD, question, at)
  next_place = place + 2
end
if rows == JOINT + 1 or rows == JOINT + 2 then
  local last, kind_byte, begins, own_ends, next_ends, mark = next_place - 1, nil, nil, nil, nil, nil
  kind_byte, begins, own_ends, next_ends, period_max = unpack(CALENDAR_RULE, question, period_from)
  local state = kind_byte ~= CALENDAR or values and values[last] or pcall('GET', keys[last])
  if not state or kind_byte == CALENDAR and #state == CALENDAR_STATE_SIZE then
    if state then mark, ends, since, period_used = unpack(CALENDAR_STATE, state) end
    is_new_period = not state or mark == CALENDAR_MARK and ends <= now
    if is_new_period then
      mark, ends, since, period_used =
        CALENDAR_MARK, now < own_ends and own_ends or next_ends, now, 0
    end
    local is_usual = mark == CALENDAR_MARK and begins <= now and now < next_ends
      and ends - now <= TEN_YEARS and period_used <= MAX_STORED
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
