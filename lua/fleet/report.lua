-- Keeps what a process says of itself, and tells it what all processes of its service share.
--
-- KEYS[1]  what this process says, a string
-- KEYS[2]  the processes, a sorted set: when each has last said something, in milliseconds
-- KEYS[3]  the secret by which pages hash keys, 16 bytes
-- KEYS[4]  the keys that are let through, a sorted set: until when, in milliseconds
-- KEYS[5]  those that are blocked, alike
-- KEYS[6]  those that are raised, alike
-- KEYS[7]  the version of all three: the microsecond of their last change
-- KEYS[8]  the processes that have decided something, alike KEYS[2]
-- ARGV[1]  the process
-- ARGV[2]  what it says
-- ARGV[3]  the version that it knows, 0 for none
-- ARGV[4]  16 random bytes, which become the secret if there is none
-- ARGV[5]  for how many milliseconds a key is let through or blocked at most
-- ARGV[6]  for how many it is raised at most
-- ARGV[7]  the maximum number of members of each list in the reply
-- ARGV[8]  1 if it has decided something
--
-- Reply: {the secret; the version, 0 without one;
--         how many processes have decided something;
--         nil if the version is known and not 0, else the lists: {member, milliseconds that it has}}

-- include: fleet
-- In milliseconds. A process that was killed is gone after SILENCE.
local SILENCE, INDEX_EXPIRY, SECRET_EXPIRY = 5000, 60000, 86400000

call('SET', KEYS[1], ARGV[2], 'PX', SILENCE)
for _, index in ipairs({ KEYS[2], KEYS[8] }) do
  call('ZREMRANGEBYSCORE', index, '-inf', whole(now - SILENCE))
  -- After a clock has stepped back: every process that lives says so within a second.
  call('ZREMRANGEBYSCORE', index, '(' .. whole(now), '+inf')
  if index == KEYS[2] or ARGV[8] == '1' then
    call('ZADD', index, whole(now), ARGV[1])
    call('PEXPIRE', index, INDEX_EXPIRY)
  end
end
local deciding = call('ZCARD', KEYS[8])

local secret = call('GET', KEYS[3])
if not secret or #secret ~= 16 then
  secret = ARGV[4]
  call('SET', KEYS[3], secret)
end
call('PEXPIRE', KEYS[3], SECRET_EXPIRY)

local version = call('GET', KEYS[7]) or '0'
-- Without a version, and by a value that no process wrote, nothing is known of the lists.
if #version > 16 or not string.find(version, '^%d+$') then
  version = '0'
elseif version == ARGV[3] and version ~= '0' then
  return { secret, version, deciding, false }
end
local first = whole(now + 1)
local lists = {}
for at, longest in ipairs({ ARGV[5], ARGV[5], ARGV[6] }) do
  local last = whole(now + longest + STEP_BACK)
  local members =
    call('ZRANGEBYSCORE', KEYS[3 + at], first, last, 'WITHSCORES', 'LIMIT', 0, ARGV[7])
  local list = {}
  for index = 1, #members, 2 do
    list[#list + 1] = { members[index], whole(members[index + 1] - now) }
  end
  lists[at] = list
end
return { secret, version, deciding, lists }
