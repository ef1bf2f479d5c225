-- Gives back what was charged to the counters of a key: see `refund_begin`, which says what it uses
-- and gives.
--
-- Uses   what `read_counters` does; write_counter
--        refund_counter(counter) -> units given back
--        ranges: nil, or the functions that keep what was given back apart:
--          read(counters, serial, apart); before(serial), before each refund;
--          after(counters, serial, last_charge, refunded), after each that gives something back;
--          write(counters, apart)
-- Gives  refund_all
local function refund_all(number, apart)
  local raw = call('GET', key)
-- include: read_counters
  local counts, is_changed = last_charge <= now and anything_counts, false
  if counts and ranges then ranges.read(counters, serial, apart) end
  for _ = 1, number do
    next_receipt()
    local refunded = 0
    if counts then
      if ranges then ranges.before(serial) end
      for t = 1, #counters do
        local counter = counters[t]
        if receipt_stamp >= counter.refundable_since then
          refunded = math.max(refunded, refund_counter(counter))
        end
      end
      if refunded > 0 then
        is_changed = true
        if ranges then ranges.after(counters, serial, last_charge, refunded) end
      end
    end
    replies[#replies + 1] = refunded
  end
  if is_changed then
    local state_mark = lease_text == '' and own_mark or leased_mark
    local state = pack(HEADER, state_mark, serial, last_charge) .. lease_text
    for t = 1, #counters do state = state .. write_counter(counters[t]) end
    call('SET', key, state, 'KEEPTTL')
    if ranges then ranges.write(counters, apart) end
  end
end
