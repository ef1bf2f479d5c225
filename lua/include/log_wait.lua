-- The wait of a denied take: until enough entries have left each window in which the cost does not
-- fit.
--
-- Uses   cost, limits, used, quotas; key, newest, merges, went_back; what `log_search` does
-- Gives  number: microseconds
for n = 1, number_limiting do
  local quota, missing = quotas[n], used[n] + cost - limits[n]
  if missing > 0 then
    -- Every entry holds at least one unit, unless something was given back: if one unit has to
    -- leave, the oldest entry suffices.
    local leaves = quota.oldest
    if missing > 1 or refunded then
      -- What this call has charged is not in the set yet.
      local high = newest and call('ZCARD', key) or 0
      if merges then high = high - 1 end
      local units_behind, left = limits[n] - cost + 1, -1
-- include: log_search
      leaves = stamp_behind or now
      if went_back and leaves > now then leaves = now end
    end
    number = math.max(number, leaves + quota.window - now)
  end
end
