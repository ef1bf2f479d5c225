-- Computes how long a denied caller has to wait.
--
-- Uses   what `permits` gives
-- Gives  wait_for(permits)  the microseconds until this many more permits are available; after the
--                           clock went back, grants with a time in the future count as granted now

local function expire_at(permits)
  local from = 0
  while true do
    -- Each grant has at least one permit.
    local to = from + math.min(permits, 128) - 1
    local grants = call('ZRANGE', permits_key, text(from), text(to), 'WITHSCORES')
    if #grants == 0 then return ms_up + interval end
    for index = 1, #grants, 2 do
      local score = grants[index + 1] + 0
      if score > ms - interval then permits = permits - permits_of(grants[index]) end
      if permits <= 0 then return score + interval end
    end
    from = to + 1
  end
end

local function wait_for(permits)
  local future = call('ZRANGEBYSCORE', permits_key, '(' .. text(ms_up), '+inf')
  for _, member in ipairs(future) do call('ZADD', permits_key, text(ms_up), member) end
  if needs_write or #future > 0 then store() end
  return math.max(expire_at(permits) * 1000 - now, 1)
end
