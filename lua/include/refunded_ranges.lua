-- Units that were given back. The units of a key are numbered in the order of their charges, and
-- units that were given back are ranges of these numbers. A range begins at the first unit of the
-- charge that was given back, or earlier: where there are more ranges than are kept, two are
-- merged, as if the later units had been given back from charges before their own.
--
-- They are a string: a byte that no text begins with, and big-endian integers of 7 bytes:
--   since         an instant, for the algorithm
-- and for each range, the oldest first:
--   start         the number of its first unit
--   up_to         how many units it and all earlier ranges have
--
-- Uses   nothing
-- Gives  are_ranges(text); ranges_before, range_at; units_from(ranges, unit): how many
--        of the units from this one on were given back

local function are_ranges(text)
  return type(text) == 'string' and #text > RANGES_SIZE and #text % RANGE_SIZE == RANGES_SIZE
    and byte(text) == REFUNDED_MARK
end

-- How many ranges begin before this unit: usually none, so the search begins with the first.
local function ranges_before(ranges, unit)
  local low, high, middle = 0, (#ranges - RANGES_SIZE) / RANGE_SIZE, 0
  while low < high do
    if unpack(RANGE, ranges, RANGES_SIZE + 1 + middle * RANGE_SIZE) < unit then
      low = middle + 1
    else
      high = middle
    end
    middle = floor((low + high) / 2)
  end
  return low
end

-- Returns where the range with this number begins, and the units of it and all earlier ranges.
local function range_at(ranges, number)
  if number == 0 then return 0, 0 end
  return unpack(RANGE, ranges, RANGES_SIZE + 1 + (number - 1) * RANGE_SIZE)
end

local function units_from(ranges, unit)
  local number = (#ranges - RANGES_SIZE) / RANGE_SIZE
  local start, all = range_at(ranges, number)
  local up_to = all
  if start >= unit then
    number = ranges_before(ranges, unit)
    start, up_to = range_at(ranges, number)
  end
  local _, before = range_at(ranges, number > 0 and number - 1 or 0)
  local part = start + up_to - before - unit
  return all - up_to + (part > 0 and part or 0)
end
