    -- Finds the entries of a log that no window needs. It waits until the set is full; but while
    -- longer windows of earlier charges need something, it does so immediately, and makes one entry
    -- of those that need not be told apart: those with `long_units` behind them that have left the
    -- window of this charge. Its units count until the last of them has left.
    --
    -- Uses   window, longest, longest_base, edge; key, newest, merges, base; the fields of the
    --        newest entry; what `log_search` does
    -- Gives  edge: the stamp of the last entry that goes, for commands, or nil; merged: the entry
    --        that takes its place, or nil; oldest_base, oldest_stamp: as they are then;
    --        refundable_since
    local merged
    if oldest_stamp > now - window then
      edge = nil
    else
      if not longest_base then edge = format('%.0f', now - window) end
      local is_full, high, left
      if long_window > 0 then
        high, left, longest_base = call('ZCOUNT', key, '-inf', edge), now - long_window, nil
        is_full, edge = oldest_stamp <= left, format('%.0f', left)
      else
        local held = (total - oldest_base) % MODULUS
        if refunded then held = held - units_from(refunded, oldest_base) end
        is_full = held > math.min(longest.max, window / MILLISECOND)
      end
      if not is_full then
        edge = nil
      else
        if not longest_base then
          local oldest = call('ZRANGEBYSCORE', key, '(' .. edge, '+inf', 'LIMIT', '0', '1')[1]
          longest.oldest, longest_base = entry_of(oldest)
          local is_new = not longest_base or longest.oldest >= now or merges and oldest == newest
          if is_new then longest.oldest, longest_base = now, base end
        end
        oldest_base, oldest_stamp = longest_base, longest.oldest
      end
      if long_window > 0 then
        local units_behind = long_units
-- include: log_search
        local last = needless > 0 and call('ZRANGE', key, needless - 1, needless - 1)[1]
        local of, _, with = entry_of(last)
        local is_beyond = (total - oldest_base) % MODULUS > LOG_MAX_HELD
        if is_beyond then
          oldest_base, refundable_since = (total - LOG_MAX_HELD) % MODULUS, now + 1
        end
        if of and (of > oldest_stamp or is_beyond) then
          merged = pack(LOG_ENTRY, LOG_MARK, with, oldest_base, oldest_base, of, of, horizon, units,
            serial)
          oldest_stamp, edge = of, format('%.0f', of)
        end
      end
    end
