-- Units that were given back. The units of a key are numbered in the order of their charges, and
-- units that were given back are runs of such numbers. A run begins where the charge did that they
-- were given back of, or earlier: of more runs than may be kept, two become one, as if the later
-- units had been given back of charges before their own.
--
-- They are a string: a byte that no text begins with, and big-endian integers of 7 bytes:
--   since         an instant, for the algorithm
-- and for each run, the oldest first:
--   start         the number of its first unit
--   up_to         how many units it and all earlier runs have
--
-- Uses   nothing
-- Gives  the formats; is_given_back(text); runs_before, run_at; units_from(runs, unit): how many of
--        the units from this one on were given back

local RUNS_HEAD, RUNS_SIZE, RUN, RUN_SIZE = '>BI7', 8, '>I7I7', 14

local function is_given_back(text)
  return type(text) == 'string' and #text > RUNS_SIZE and #text % RUN_SIZE == RUNS_SIZE
    and byte(text) == GIVEN_BACK_MARK
end

-- How many runs begin before this unit. It is rarely a later one than the first.
local function runs_before(runs, unit)
  local low, high, middle = 0, (#runs - RUNS_SIZE) / RUN_SIZE, 0
  while low < high do
    if unpack(RUN, runs, RUNS_SIZE + 1 + middle * RUN_SIZE) < unit then
      low = middle + 1
    else
      high = middle
    end
    middle = floor((low + high) / 2)
  end
  return low
end

-- Returns where the run with this number begins, and how many units it and all earlier runs have.
local function run_at(runs, number)
  if number == 0 then return 0, 0 end
  return unpack(RUN, runs, RUNS_SIZE + 1 + (number - 1) * RUN_SIZE)
end

local function units_from(runs, unit)
  local number = (#runs - RUNS_SIZE) / RUN_SIZE
  local start, all = run_at(runs, number)
  local up_to = all
  if start >= unit then
    number = runs_before(runs, unit)
    start, up_to = run_at(runs, number)
  end
  local _, before = run_at(runs, number > 0 and number - 1 or 0)
  local part = start + up_to - before - unit
  return all - up_to + (part > 0 and part or 0)
end
