-- Changes what was given back: see `refunded_ranges`.
--
-- Uses   what `refunded_ranges` gives
-- Gives  ranges_end(ranges): the number behind the last unit that was given back
--        give_back(ranges, since, unit, back, last, held, max) -> ranges or nil, is_inexact
--               gives back so many units of a charge, or of charges that begin with this unit.
--               `last` is the number behind the last unit that was charged, and `held` how many of
--               all units may still count. If there were more than `max` ranges, it is inexact
--        cut(ranges, last) -> ranges: there are no units from this one on; nil if there are no ranges
--        with_since(ranges, since) -> ranges

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

-- Drops ranges that do not matter any more, and makes two ranges one until a fifth less is left.
-- Between a range and the one before it are units that still count. Where they are fewest, the two
-- become one; more where many more units are behind: long windows look at those alone.
local function with_fewer_ranges(ranges, last, held, max)
  local number = (#ranges - RANGES_SIZE) / RANGE_SIZE
  local values = { unpack('>' .. string.rep('I7I7', number), ranges, RANGES_SIZE + 1) }
  local starts, ends, behind, before = {}, {}, {}, 0
  for n = 1, number do
    starts[n], ends[n] = values[2 * n - 1], values[2 * n - 1] + values[2 * n] - before
    before = values[2 * n]
  end
  -- The units that still count behind the end of each range.
  local next_start, units_behind = last, 0
  for n = number, 1, -1 do
    units_behind = units_behind + next_start - ends[n]
    behind[n], next_start = units_behind, starts[n]
  end
  while number > 0 and behind[1] > held do
    for _, list in ipairs({ starts, ends, behind }) do table.remove(list, 1) end
    number = number - 1
  end
  if number == 0 then return nil, false end
  local is_inexact = number > max
  while is_inexact and number > max - floor(max / 5) do
    local least, later = math.huge, number
    for n = number, 2, -1 do
      local between = starts[n] - ends[n - 1]
      local harm = between * between / (behind[n] + 1)
      if harm < least then least, later = harm, n end
    end
    ends[later - 1] = ends[later - 1] + ends[later] - starts[later]
    for _, list in ipairs({ starts, ends, behind }) do table.remove(list, later) end
    number = number - 1
    behind[later - 1] = (behind[later] or 0) + (starts[later] or last) - ends[later - 1]
  end
  local parts, up_to = { sub(ranges, 1, RANGES_SIZE) }, 0
  for n = 1, number do
    up_to = up_to + ends[n] - starts[n]
    parts[n + 1] = pack(RANGE, starts[n], up_to)
  end
  return concat(parts), is_inexact
end

local function give_back(ranges, since, unit, back, last, held, max)
  if not ranges then return pack(RANGES_HEAD .. 'I7I7', REFUNDED_MARK, since, unit, back), false end
  -- The range that begins before the unit or with it, and all later ones.
  local number, at = (#ranges - RANGES_SIZE) / RANGE_SIZE, ranges_before(ranges, unit + 1)
  local first = math.max(at, 1)
  local values = { unpack('>' .. string.rep('I7I7', number - first + 1), ranges,
    RANGES_SIZE + 1 + (first - 1) * RANGE_SIZE) }
  table.remove(values)
  local _, before = range_at(ranges, first - 1)
  local from = 2
  if at == 0 or values[1] + values[2] - before < unit then
    -- A range of its own.
    local up_to = at == 0 and 0 or values[2]
    from = at == 0 and 2 or 4
    before = up_to
    table.insert(values, from - 1, unit)
    table.insert(values, from, up_to)
  end
  for n = from, #values, 2 do values[n] = values[n] + back end
  while values[from + 1] and values[from + 1] <= values[from - 1] + values[from] - before do
    -- It meets the next one.
    table.remove(values, from)
    table.remove(values, from)
  end
  ranges = pack(RANGES_HEAD, REFUNDED_MARK, since)
    .. sub(ranges, RANGES_SIZE + 1, RANGES_SIZE + (first - 1) * RANGE_SIZE)
    .. pack('>' .. string.rep('I7I7', #values / 2), _G.unpack(values))
  if #ranges <= RANGES_SIZE + max * RANGE_SIZE then return ranges, false end
  return with_fewer_ranges(ranges, last, held, max)
end
