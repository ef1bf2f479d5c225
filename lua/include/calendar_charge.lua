-- Charges the count of the calendar that `calendar_read` has read, for as many takes as the count
-- of windows beside it was charged, and adds the answers.
--
-- Uses   is_usual, allowed, replies, and others of the usual case, in its loop
if period and rows ~= 1 and now <= deadline then is_usual, allowed = true, fitting end
if period and is_usual then
  local text = ''
  if allowed > 0 then
    period_used = period_used + period_cost * allowed
    local state = pack(CALENDAR_STATE, CALENDAR_MARK, ends, since, period_used)
    -- A server that has written the count of windows does not refuse this.
    local set, written = rows == 1 and call or pcall, nil
    if is_new_period then
      -- Two days more: the count is still there if the clock is set back.
      local expiry = floor((ends - now) / MILLISECOND) + TWO_DAYS
      written = set('SET', keys[period], state, 'PX', format('%.0f', expiry))
    else
      written = set('SET', keys[period], state, 'KEEPTTL')
    end
    is_usual, text = written.ok,
      pack(ANSWER, ALLOWED, allowed, since, period_max - period_used, ends - now)
  end
  if allowed < takes then
    local left = period_max - period_used
    local wait = period_cost > left and ends - now or 0
    text = text .. pack(ANSWER, DENIED, takes - allowed, wait, math.max(left, 0), ends - now)
  end
  replies[period + 1] = is_usual and text
end
