-- Changes what was given back: see `refunded_ranges`.
--
-- Uses   what `refunded_ranges` gives
-- Gives  ranges_end(ranges): the number behind the last unit that was given back
--        give_back(ranges, since, unit, back, first, max) -> ranges, is_inexact
--               gives back so many units of a charge, or of charges that begin with this unit. No
--               unit before `first` counts any more. No more than `max` ranges are kept: it is
--               inexact if that was too few
--        with_since(ranges, since) -> ranges
--        cut(ranges, last) -> ranges: there are no units from this one on; nil if no ranges are left

local function ranges_end(ranges)
  local number = (#ranges - RANGES_SIZE) / RANGE_SIZE
  local start, up_to = range_at(ranges, number)
  local _, before = range_at(ranges, number - 1)
  return start + up_to - before
end

local function cut(ranges, last)
  local number = ranges_before(ranges, last)
  if number == 0 then return nil end
  local start, up_to = range_at(ranges, number)
  local _, before = range_at(ranges, number - 1)
  return sub(ranges, 1, RANGES_SIZE + (number - 1) * RANGE_SIZE)
    .. pack(RANGE, start, math.min(up_to, before + last - start))
end

local function with_since(ranges, since)
  return pack(RANGES_HEAD, REFUNDED_MARK, since) .. sub(ranges, RANGES_SIZE + 1)
end

-- The end of the range at this place of a list: start and up_to of each range.
local function end_at(list, at) return list[at] + list[at + 1] - (list[at - 1] or 0) end

-- Makes one range of this one and the next.
local function join(list, at)
  table.remove(list, at + 1)
  table.remove(list, at + 1)
end

local function give_back(ranges, since, unit, back, first, max)
  local list, at = {}, -1
  if ranges then
    local all = '>' .. string.rep('I7I7', (#ranges - RANGES_SIZE) / RANGE_SIZE)
    list = { unpack(all, ranges, RANGES_SIZE + 1) }
    table.remove(list)
  end
  -- The last range that begins with this unit or before it, or a new range.
  while list[at + 2] and list[at + 2] <= unit do at = at + 2 end
  if at < 0 or end_at(list, at) < unit then
    at = at + 2
    table.insert(list, at, unit)
    table.insert(list, at + 1, list[at - 1] or 0)
  end
  for n = at + 1, #list, 2 do list[n] = list[n] + back end
  while list[at + 2] and list[at + 2] <= end_at(list, at) do join(list, at) end
  local is_inexact = #list > 2 * max
  if is_inexact then
    -- Merges the nearest two: the fewest units that still count are between them, or none, if both
    -- ranges have ceased to count.
    local least, nearest = math.huge, 1
    for n = 1, #list - 3, 2 do
      local between = end_at(list, n + 2) <= first and 0 or list[n + 2] - end_at(list, n)
      if between < least then least, nearest = between, n end
    end
    join(list, nearest)
  end
  local all = RANGES_HEAD .. string.rep('I7I7', #list / 2)
  return pack(all, REFUNDED_MARK, since, _G.unpack(list)), is_inexact
end
