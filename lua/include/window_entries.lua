-- How many of the oldest entries are stamped at `latest` or before, or have at least `units_behind`
-- units behind them; and the running total with the last of these.
local function count_oldest(counter, latest, units_behind)
  local entries, total = counter.entries, counter.total
  local low, high, with_last, first = 0, counter.number, counter.base, 0
  while low < high do
    local stamp, with = unpack(WINDOW_ENTRY, entries, first * WINDOW_ENTRY_SIZE + 1)
    if stamp <= latest or (total - with) % MODULUS >= units_behind then
      low, with_last = first + 1, with
    else
      high = first
    end
    -- It begins with the oldest entry: that is rarely one of them.
    first = floor((low + high) / 2)
  end
  return low, with_last
end
