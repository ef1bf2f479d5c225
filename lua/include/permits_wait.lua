-- When permits come back.
--
-- Uses  what `permits` gives.
-- Gives wait_for(permits): the microseconds until so many more than now have left. If the clock went back, what is
--       granted in the future counts as granted now from here on.

local function leaves_at(permits)
  local from = 0
  while true do
    -- Each has at least one.
    local to = from + math.min(permits, 128) - 1
    local some = call('ZRANGE', permits_key, text(from), text(to), 'WITHSCORES')
    if #some == 0 then return ms_up + interval end
    for at = 1, #some, 2 do
      local score = some[at + 1] + 0
      if score > ms - interval then permits = permits - weight(some[at]) end
      if permits <= 0 then return score + interval end
    end
    from = to + 1
  end
end

local function wait_for(permits)
  local future = call('ZRANGEBYSCORE', permits_key, '(' .. text(ms_up), '+inf')
  for _, member in ipairs(future) do call('ZADD', permits_key, text(ms_up), member) end
  if broken or #future > 0 then write() end
  return math.max(leaves_at(permits) * 1000 - now, 1)
end
