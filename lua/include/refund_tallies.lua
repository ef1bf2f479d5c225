-- Gives back what was charged to the tallies of a key: see `refund_begin`, which says what it uses
-- and gives.
--
-- Uses   what `read_tallies` does; write_tally
--        refund_tally(tally) -> units given back
--        before_tallies(tallies, serial, apart), or nil, and
--        after_tallies(tallies, serial, last_charge, apart, refunded), or nil:
--                           what is done before and after that, with the key that is kept apart
-- Gives  refund
local function refund(apart)
  local raw = call('GET', key)
-- include: read_tallies
  if last_charge > now or not anything_counts then return 0 end
  if before_tallies then before_tallies(tallies, serial, apart) end
  local refunded = 0
  for t = 1, #tallies do
    local tally = tallies[t]
    if receipt_stamp >= tally.refundable_since then
      refunded = math.max(refunded, refund_tally(tally))
    end
  end
  if refunded > 0 then
    local state_mark = lease_text == '' and MARK or LEASED_MARK
    local state = pack(HEADER, state_mark, serial, last_charge) .. lease_text
    for t = 1, #tallies do state = state .. write_tally(tallies[t]) end
    call('SET', key, state, 'KEEPTTL')
    if after_tallies then after_tallies(tallies, serial, last_charge, apart, refunded) end
  end
  return refunded
end
