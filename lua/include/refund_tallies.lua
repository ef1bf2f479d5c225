-- Gives back what was charged to the tallies of a key: see `refund_begin`, which says what it uses
-- and gives.
--
-- Uses   what `read_tallies` does; write_tally
--        refund_tally(tally) -> units given back
--        runs: nil, or the functions that keep what was given back apart:
--          read(tallies, serial, apart); before(serial), before each refund;
--          after(tallies, serial, last_charge, refunded), after each that gives something back;
--          write(tallies, apart)
-- Gives  refund_all
local function refund_all(number, apart)
  local raw = call('GET', key)
-- include: read_tallies
  local counts, is_changed = last_charge <= now and anything_counts, false
  if counts and runs then runs.read(tallies, serial, apart) end
  for _ = 1, number do
    next_receipt()
    local refunded = 0
    if counts then
      if runs then runs.before(serial) end
      for t = 1, #tallies do
        local tally = tallies[t]
        if receipt_stamp >= tally.refundable_since then
          refunded = math.max(refunded, refund_tally(tally))
        end
      end
      if refunded > 0 then
        is_changed = true
        if runs then runs.after(tallies, serial, last_charge, refunded) end
      end
    end
    replies[#replies + 1] = refunded
  end
  if is_changed then
    local state_mark = lease_text == '' and MARK or LEASED_MARK
    local state = pack(HEADER, state_mark, serial, last_charge) .. lease_text
    for t = 1, #tallies do state = state .. write_tally(tallies[t]) end
    call('SET', key, state, 'KEEPTTL')
    if runs then runs.write(tallies, apart) end
  end
end
