-- Leaves permits to clients of Redisson while they use the limiter as well. They come back up to a
-- tick of their timer late, so nothing would be left for them.
--
-- They are left a little more than they were granted lately, at most a third of the rate, and never
-- so much that the request could not be granted at all. Ids tell grants apart: the second half of
-- an id of this crate is a small number or "missing_", and that of Redisson's is random.
--
-- Uses   what `permits` gives
--        redisson_average     how many permits of Redisson counted lately; nil: they need not be
--                             counted, because there were none a moment ago
-- Gives  redisson             how many permits of Redisson count now; nil if they were not counted.
--                             They are not if half of the rate is free, or if the limiter is not
--                             shared
--        is_redisson(member)  whether the grant is Redisson's
--        held_for(redisson, average)
--                             how many of the remaining permits are left to Redisson, if `redisson`
--                             of its permits count now and `average` did lately
--        held                 the same for what counts now

-- "mi" is 109, 105.
local function is_redisson(member)
  local first, second = string.byte(member, 10, 11)
  return #member == 21 and not (first == 0 and second == 0 or first == 109 and second == 105)
end

-- If there are more grants than this, 8 runs of them are read, evenly spread over the set.
local MAX_READ = 64

local function count_redisson()
  local first = has_expired and call('ZCOUNT', permits_key, '-inf', text(expired_until)) or 0
  local size = call('ZCARD', permits_key) - first
  local runs, length = 1, size
  if size > MAX_READ then runs, length = 8, MAX_READ / 8 end
  local counted, of_redisson = 0, 0
  for run = 0, runs - 1 do
    local from = first + math.floor(run * size / runs)
    for _, member in ipairs(call('ZRANGE', permits_key, text(from), text(from + length - 1))) do
      local permits = #member == 21 and struct.unpack('<I4', member, 18) or permits_of(member)
      counted = counted + permits
      if is_redisson(member) then of_redisson = of_redisson + permits end
    end
  end
  if of_redisson == 0 then return 0 end
  return math.ceil((rate - remaining) * of_redisson / counted)
end

local function held_for(redisson, average)
  local used = math.max(average, redisson)
  if used == 0 then return 0 end
  local share = math.min(math.ceil(used * 4 / 3 + rate / 50), rate / 3, rate - requested)
  return math.max(math.floor(share) - redisson, 0)
end

local redisson, held = nil, 0
if redisson_average and not counts_expire and remaining - requested < rate / 2 then
  redisson = count_redisson()
  held = held_for(redisson, redisson_average)
end
