  -- Gives back what was charged to the tallies of a key: see `refund`, which says what it uses and
  -- gives.
  --
  -- Uses   what `state` does; write_tally; take_back(tally, later) -> units given back
  --        charged_later(), or nil: how many units were charged after the take and not given back
  --        since
  local raw = call('GET', key)
-- include: state
  if newest <= now and is_live then
    local later = charged_later and charged_later()
    for t = 1, #tallies do
      local tally = tallies[t]
      life = math.max(life, tally.life)
      if receipt_stamp >= tally.begun then refunded = math.max(refunded, take_back(tally, later)) end
    end
    if refunded > 0 then
      local state = pack(HEADER, MARK, serial, newest)
      for t = 1, #tallies do state = state .. write_tally(tallies[t]) end
      call('SET', key, state, 'KEEPTTL')
    end
  end
