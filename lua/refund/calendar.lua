-- Gives back what takes were charged in a period of the calendar.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. Each count is a string: see
-- include/calendar.lua. A receipt's stamp is the end of its period, and its serial number
-- is since when that counts.

-- include: refund_begin

local function refund_all(number)
  local raw, mark, ends, since, used = call('GET', key), nil, nil, nil, 0
  if raw and #raw == CALENDAR_STATE_SIZE then
    mark, ends, since, used = unpack(CALENDAR_STATE, raw)
  end
  local counts, left = mark == CALENDAR_MARK and ends > now, used
  for _ = 1, number do
    next_receipt()
    local is_its = counts and receipt_stamp == ends and receipt_serial == since
    local given_back = is_its and min(max_units, left) or 0
    left = left - given_back
    replies[#replies + 1] = given_back
  end
  if left < used then
    call('SET', key, pack(CALENDAR_STATE, mark, ends, since, left), 'KEEPTTL')
  end
end

-- include: refund_end
