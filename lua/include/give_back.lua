-- Changes what was given back: see `given_back`.
--
-- Uses   what `given_back` gives
-- Gives  runs_end(runs): the number behind the last unit that was given back
--        give_back(runs, since, unit, back, last, held, max) -> runs or nil, is_inexact
--               gives back so many units of a charge, or of charges that begin with this unit.
--               `last` is the number behind the last unit that was charged, and `held` how many of
--               all units may still count. If there were more than `max` runs, it is inexact
--        cut(runs, last) -> runs: there are no units from this one on; nil if there are no runs
--        with_since(runs, since) -> runs

local function runs_end(runs)
  local number = (#runs - RUNS_SIZE) / RUN_SIZE
  local start, up_to = run_at(runs, number)
  local _, before = run_at(runs, number - 1)
  return start + up_to - before
end

local function cut(runs, last)
  local number = runs_before(runs, last)
  if number == 0 then return nil end
  local start, up_to = run_at(runs, number)
  local _, before = run_at(runs, number - 1)
  return sub(runs, 1, RUNS_SIZE + (number - 1) * RUN_SIZE)
    .. pack(RUN, start, math.min(up_to, before + last - start))
end

local function with_since(runs, since)
  return pack(RUNS_HEAD, GIVEN_BACK_MARK, since) .. sub(runs, RUNS_SIZE + 1)
end

-- Drops runs that do not matter any more, and makes two runs one until a fifth less is left.
-- Between a run and the one before it are units that still count. Where they are fewest, the two
-- become one; more where many more units are behind: long windows look at those alone.
local function with_fewer_runs(runs, last, held, max)
  local number = (#runs - RUNS_SIZE) / RUN_SIZE
  local values = { unpack('>' .. string.rep('I7I7', number), runs, RUNS_SIZE + 1) }
  local starts, ends, behind, before = {}, {}, {}, 0
  for n = 1, number do
    starts[n], ends[n] = values[2 * n - 1], values[2 * n - 1] + values[2 * n] - before
    before = values[2 * n]
  end
  -- The units that still count behind the end of each run.
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
  local parts, up_to = { sub(runs, 1, RUNS_SIZE) }, 0
  for n = 1, number do
    up_to = up_to + ends[n] - starts[n]
    parts[n + 1] = pack(RUN, starts[n], up_to)
  end
  return concat(parts), is_inexact
end

local function give_back(runs, since, unit, back, last, held, max)
  if not runs then return pack(RUNS_HEAD .. 'I7I7', GIVEN_BACK_MARK, since, unit, back), false end
  -- The run that begins before the unit or with it, and all later ones.
  local number, at = (#runs - RUNS_SIZE) / RUN_SIZE, runs_before(runs, unit + 1)
  local first = math.max(at, 1)
  local values = { unpack('>' .. string.rep('I7I7', number - first + 1), runs,
    RUNS_SIZE + 1 + (first - 1) * RUN_SIZE) }
  table.remove(values)
  local _, before = run_at(runs, first - 1)
  local from = 2
  if at == 0 or values[1] + values[2] - before < unit then
    -- A run of its own.
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
  runs = pack(RUNS_HEAD, GIVEN_BACK_MARK, since)
    .. sub(runs, RUNS_SIZE + 1, RUNS_SIZE + (first - 1) * RUN_SIZE)
    .. pack('>' .. string.rep('I7I7', #values / 2), _G.unpack(values))
  if #runs <= RUNS_SIZE + max * RUN_SIZE then return runs, false end
  return with_fewer_runs(runs, last, held, max)
end
