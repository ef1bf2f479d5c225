-- The arithmetic of buckets, exact beyond what a double holds. A bucket drains by `pace_units` in
-- every `pace_micros`.
--
-- Uses   floor
-- Gives  fraction(part, number, of)
--        drained(micros, bucket) -> the units that drain meanwhile, whether a part of one more does
--        time_for(units, bucket) -> the microseconds in which they drain, rounded up

-- part * number / of, for a part smaller than `of`: the quotient, and what is left.
local function fraction(part, number, of)
  local product = part * number
  if product < EXACT then
    local quotient = floor(product / of)
    return quotient, product - quotient * of
  end
  -- Too large for a double: bit by bit, as by hand.
  local quotient, left, bit = 0, 0, 562949953421312
  while bit >= 1 do
    quotient, left = 2 * quotient, 2 * left
    if number >= bit then
      number, left = number - bit, left + part
    end
    -- Twice what was left, and a part: at most two times more than what goes in.
    while left >= of do quotient, left = quotient + 1, left - of end
    bit = bit / 2
  end
  return quotient, left
end

local function drained(micros, bucket)
  local pace_units, pace_micros = bucket.pace_units, bucket.pace_micros
  local whole = floor(micros / pace_micros)
  local quotient, rest = fraction(micros - whole * pace_micros, pace_units, pace_micros)
  return whole * pace_units + quotient, rest > 0
end

local function time_for(units, bucket)
  local pace_units, pace_micros = bucket.pace_units, bucket.pace_micros
  local whole = floor(units / pace_units)
  local part = units - whole * pace_units
  if part == 0 then return whole * pace_micros end
  local quotient, rest = fraction(part, pace_micros, pace_units)
  if rest > 0 then quotient = quotient + 1 end
  return whole * pace_micros + quotient
end
