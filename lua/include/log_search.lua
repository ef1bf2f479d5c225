-- Counts the oldest entries of a log that have at least `units_behind` units behind them, or are
-- stamped at `left` or before: a binary search by rank. It looks at `high` entries at most.
--
-- Uses   high, units_behind, left; key, now, total, refunded, entry_of
-- Gives  needless: how many, with the member that says what was given back; stamp_behind: the stamp
--        of the next entry, if it looked at that
local needless, stamp_behind = refunded and 1 or 0, nil
while needless < high do
  local middle = floor((needless + high) / 2)
  local of, _, with = entry_of(call('ZRANGE', key, middle, middle)[1])
  if not of then of, with = now, total end
  local behind = (total - with) % MODULUS
  if refunded then behind = behind - units_from(refunded, with) end
  if behind >= units_behind or of <= left then
    needless = middle + 1
  else
    high, stamp_behind = middle, of
  end
end
