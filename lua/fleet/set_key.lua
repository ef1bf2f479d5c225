-- Lets a key of a rule through for a while, blocks it or raises it, or ends that.
--
-- KEYS[1]  the keys of this kind, a sorted set: until when, in milliseconds
-- KEYS[2]  those of the kind that this ends; of a raise, again those of its own
-- KEYS[3]  those that are raised
-- KEYS[4]  the version of all: the microsecond of their last change
-- ARGV[1]  the key and its rule: what the member begins with
-- ARGV[2]  the rest of the member: of a raise the factor, and who does it
-- ARGV[3]  for how many milliseconds; 0 ends it
-- ARGV[4]  for how many milliseconds a key of this kind is at most
-- ARGV[5]  the maximum number of members
-- ARGV[6]  for how many milliseconds a key of any kind is at most
-- ARGV[7]  1 if it replaces a raise that is larger, or as large and longer
--
-- Reply: the member that stands, and for how many milliseconds; nil if there are as many as may be

-- include: fleet
local max_time, max_members = tonumber(ARGV[4]), tonumber(ARGV[5])

local function remove(list)
  for _, member in ipairs(call('ZRANGE', list, 0, -1)) do
    if string.sub(member, 1, #ARGV[1]) == ARGV[1] then call('ZREM', list, member) end
  end
end

call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now))
call('ZREMRANGEBYSCORE', KEYS[1], '(' .. whole(now + max_time + STEP_BACK), '+inf')
if KEYS[1] == KEYS[3] and ARGV[3] ~= '0' and ARGV[7] == '0' then
  -- Another process has raised it, of which the caller does not know yet.
  local function factor_of(rest) return tonumber(string.match(rest, '^[%d.]+')) or 0 end
  local factor, members = factor_of(ARGV[2]), call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for at = 1, #members, 2 do
    local member, time = members[at], members[at + 1] - now
    if string.sub(member, 1, #ARGV[1]) == ARGV[1] then
      local other = factor_of(string.sub(member, #ARGV[1] + 1))
      if other > factor or other == factor and time > tonumber(ARGV[3]) then
        return {member, math.floor(time)}
      end
    end
  end
end
remove(KEYS[1])
if ARGV[3] ~= '0' then
  if call('ZCARD', KEYS[1]) >= max_members then return nil end
  remove(KEYS[2])
  call('ZADD', KEYS[1], whole(now + ARGV[3]), ARGV[1] .. ARGV[2])
end
-- How long the list is still there.
local function time_of(list)
  local last = call('ZRANGE', list, -1, -1, 'WITHSCORES')
  return last[2] and last[2] - now or 0
end
local time = time_of(KEYS[1])
if time > 0 then call('PEXPIRE', KEYS[1], whole(time)) end
-- Greater than any version before, also if the clock has stepped back.
local version = clock[1] * 1000000 + clock[2]
local before = tonumber(call('GET', KEYS[4]) or nil) or 0
-- A value that no process wrote.
if before >= 2 ^ 53 or before ~= before then before = 0 end
-- It is there for longer than any list. A foreign member may have any score.
local longest = 2 * math.max(max_time, math.min(time_of(KEYS[3]), tonumber(ARGV[6])))
call('SET', KEYS[4], whole(math.max(version, before + 1)), 'PX', whole(longest))
return {ARGV[1] .. ARGV[2], tonumber(ARGV[3])}
