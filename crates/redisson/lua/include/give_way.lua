-- Leaves permits to clients of Redisson while they use the limiter as well. They come back up to a
-- tick of their timer late, so nothing would be left for them.
--
-- They are left a little more than they were granted lately, at most a third of the rate, and never
-- so much that the request could not be granted at all. If they were granted nothing, they may
-- still be asking: of a rate of 20 or more, one permit is left to them in every interval whose
-- number is a multiple of 200 / rate. That is at most half a percent of the rate. Ids tell grants
-- apart: the second half of an id of this crate is a small number or "missing_", and that of
-- Redisson's is random, or, to 3.21.0, missing.
--
-- Uses   what `permits` gives
--        redisson_average     how many permits of Redisson counted lately; nil: they need not be
--                             counted, because there were none a moment ago
-- Gives  redisson             how many permits of Redisson count now; nil if they were not counted.
--                             They are not if half of the rate is free and nothing has expired
--        redisson_lately      the same with those that expired less than a tick of Redisson's timer
--                             ago: its callers have not come back yet
--        is_redisson(member)  whether the grant is Redisson's
--        permits_to_leave(redisson, average)
--                             how many of the remaining permits are left to Redisson, if `redisson`
--                             of its permits count now and `average` did lately
--        left_to_redisson     the same for what counts now

local function is_redisson(member)
  local mark = string.sub(member, 10, 11)
  return #member == 13 or #member == 21 and mark ~= '\0\0' and mark ~= 'mi'
end

-- If there are more grants than this, 8 runs of them are read, evenly spread over the set.
local MAX_READ = 64
-- The tick of Redisson's timer, in milliseconds.
local MAX_TICK = 100

local function count_redisson()
  local size = call('ZCARD', permits_key)
  if size == 0 then return 0, 0 end
  local runs, length = 1, size
  if size > MAX_READ then runs, length = 8, MAX_READ / 8 end
  local count_now, lately = 0, 0
  for run = 0, runs - 1 do
    local from = math.floor(run * size / runs)
    local grants = call('ZRANGE', permits_key, text(from), text(from + length - 1), 'WITHSCORES')
    for index = 1, #grants, 2 do
      if is_redisson(grants[index]) then
        local permits = permits_of(grants[index])
        local expires_in = grants[index + 1] - expired_until
        if expires_in > 0 then count_now = count_now + permits end
        if expires_in > -math.min(MAX_TICK, interval) then lately = lately + permits end
      end
    end
  end
  local scale = size / (runs * length)
  return math.ceil(count_now * scale), math.ceil(lately * scale)
end

local function permits_to_leave(redisson, average)
  local used = math.max(average, redisson)
  if used == 0 then
    local is_trial = math.floor(ms / interval) % math.ceil(200 / rate) == 0
    return is_trial and rate >= 20 and requested < rate and 1 or 0
  end
  local share = math.min(math.ceil(used * 4 / 3 + rate / 50), rate / 3, rate - requested)
  return math.max(math.floor(share) - redisson, 0)
end

local redisson, redisson_lately, left_to_redisson = nil, nil, 0
local is_scarce = remaining - requested < rate / 2
if not counts_expire and (is_scarce or has_expired) then
  if redisson_average then redisson, redisson_lately = count_redisson() end
  if is_scarce then left_to_redisson = permits_to_leave(redisson or 0, redisson_average or 0) end
end
