-- When permits come back.
--
-- Uses  what `permits` gives.
-- Gives leaves_at(permits): the millisecond at which so many more than now have left; and, for the clock of a host that
--       went back, settle(), which takes what is granted in the future, and not reserved for then, for granted now.

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

-- A reservation is in the future on purpose: its identity says when it was made.
local function is_reserved(member)
  if string.byte(member) ~= 16 or string.byte(member, 2) ~= 82 or #member ~= 21 then return false end
  return struct.unpack('>I7', member, 3) <= now
end

local function settle()
  local first = call('ZRANGEBYSCORE', permits_key, '(' .. text(ms_up), '+inf', 'LIMIT', '0', '1')[1]
  if not first then return end
  local newest = call('ZRANGE', permits_key, '-1', '-1')[1]
  if is_reserved(first) and is_reserved(newest) then return end
  local passed = 0
  while true do
    local some = call('ZRANGEBYSCORE', permits_key, '(' .. text(ms_up), '+inf', 'LIMIT', text(passed), '1000')
    if #some == 0 then break end
    for _, member in ipairs(some) do
      if is_reserved(member) then
        passed = passed + 1
      else
        call('ZADD', permits_key, text(ms_up), member)
      end
    end
  end
  write(interval)
end
