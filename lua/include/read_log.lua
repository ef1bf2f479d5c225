  -- Reads the newest entry of a log, which describes the whole set.
  --
  -- Uses   newest: a member, or nil
  -- Gives  the entry's fields; is_stale; newest: nil if nothing in the set counts; refunded
  is_stale, refundable_since, refunded = false, 0, nil
  long_window, long_units, long_until = 0, 0, 0
  marked_lease, lease_stamp, lease_life = 0, 0, 0
  local mark, _
  if not newest then
    serial = 0
  elseif #newest == LOG_ENTRY_SIZE then
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, units, serial =
      unpack(LOG_ENTRY, newest)
  elseif #newest == LOG_ENTRY_AND_MORE_SIZE then
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, units, serial,
      long_window, long_units, long_until, refundable_since, marked_lease, lease_stamp,
      lease_life = unpack(LOG_ENTRY_AND_MORE, newest)
  elseif #newest == RESET_SIZE and byte(newest) == RESET_MARK then
    -- A log in which nothing counts.
    _, refundable_since = unpack(RESET, newest)
    mark, total, stamp, horizon, serial = LOG_MARK, 0, now, 0, 0
  end
  local is_valid = mark == LOG_MARK and total < MODULUS and horizon <= TEN_YEARS
    and lease_life <= TEN_YEARS
  if not is_valid or now >= stamp + horizon and now >= long_until then
    is_stale = newest
    -- The serial numbers run from zero again, unless a take with such a number may have the same
    -- stamp: one of this very instant, or one from before the clock went back.
    if not is_valid or refundable_since <= now and stamp ~= now then serial = 0 end
    if not is_valid or refundable_since <= now - now % MILLISECOND then refundable_since = 0 end
    if not is_valid then
      long_window, long_units, long_until = 0, 0, 0
      marked_lease, lease_stamp, lease_life = 0, 0, 0
    end
    newest, total, base, oldest_base, oldest_stamp, stamp = nil, 0, 0, 0, now, now
  end
  if serial >= LOG_WITH_REFUNDED then
    serial = serial - LOG_WITH_REFUNDED
    if newest then
      refunded = call('ZRANGE', key, '0', '0')[1]
      if not is_refunded(refunded) or total < oldest_base then refunded = nil end
    end
  end
