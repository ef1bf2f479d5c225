-- Gives back what was charged to the tallies of a key: see `refund_begin`, which says what it uses
-- and gives.
--
-- Uses   what `read_tallies` does; write_tally
--        refund_tally(tally, serial) -> units given back
local raw = call('GET', key)
-- include: read_tallies
if last_charge <= now and anything_counts then
  for t = 1, #tallies do
    local tally = tallies[t]
    life = math.max(life, tally.life)
    if receipt_stamp >= tally.refundable_since then
      refunded = math.max(refunded, refund_tally(tally, serial))
    end
  end
  if refunded > 0 then
    local state_mark = lease_text == '' and MARK or LEASED_MARK
    local state = pack(HEADER, state_mark, serial, last_charge) .. lease_text
    for t = 1, #tallies do state = state .. write_tally(tallies[t]) end
    call('SET', key, state, 'KEEPTTL')
  end
end
