-- Computes how long a denied caller has to wait.
--
-- Uses   what `permits` and `give_way` give
-- Gives  wait_for(permits)  the microseconds until this many more permits are available; after the
--                           clock went back, grants with a time in the future count as granted now
--
-- No caller is told to wait more than a tick of Redisson's timer for what Redisson used lately:
-- Redisson may not come back.

local function expire_at(permits, average)
  local from, redisson_left = 0, redisson
  while true do
    -- Each grant has at least one permit.
    local to = from + math.min(permits, 128) - 1
    local grants = call('ZRANGE', permits_key, text(from), text(to), 'WITHSCORES')
    if #grants == 0 then return ms_up + interval end
    for index = 1, #grants, 2 do
      local score = grants[index + 1] + 0
      if score > expired_until then
        local expiring = permits_of(grants[index])
        permits = permits - expiring
        if redisson and is_redisson(grants[index]) then
          -- When permits of Redisson expire, others are left to it.
          local before = permits_to_leave(redisson_left, average)
          redisson_left = math.max(redisson_left - expiring, 0)
          permits = permits + permits_to_leave(redisson_left, average) - before
        end
      end
      if permits <= 0 then return score + interval end
    end
    from = to + 1
  end
end

local function wait_for(permits)
  local future = call('ZRANGEBYSCORE', permits_key, '(' .. text(ms_up), '+inf')
  for _, member in ipairs(future) do call('ZADD', permits_key, text(ms_up), member) end
  -- Otherwise what has expired stays: it counts again if the clock goes back once more.
  if needs_write then store() end
  local at = expire_at(permits, redisson_average)
  if redisson and redisson_average > 0 then
    permits = permits - left_to_redisson + permits_to_leave(redisson, 0)
    at = math.min(at, (permits > 0 and expire_at(permits, 0) or ms_up) + MAX_TICK)
  end
  return math.max(at * 1000 - now, 1)
end
