-- Gives a lock back, or one of several holds on it; or gives up a request of which nobody knows whether it got it.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- KEYS[2]  the latest fencing token, a string
-- KEYS[3]  what became of the request that took it, a string
-- ARGV[1]  the holder
-- ARGV[2]  the fencing token that it was given; empty to give up
-- ARGV[3]  1 if the holder may hold it by other requests too; 0 if this is its only one
-- ARGV[4]  for how many milliseconds to remember what became of the request
-- ARGV[5]  the channel on which waiters are told
-- ARGV[6]  1 if the holder knows of no request of its own that took it anew since
-- ARGV[7]  1 if this is the first call, and comes so late that the latch may have expired
-- ARGV[8]  for how many milliseconds the holder needs the lock for its other holds; empty where it
--          knows of none
--
-- Reply: 0 if it was not held; 1 if it was, and is not by this request any more; if it is free
-- because of this call, 2 and how many clients were told
--
-- What became of a request:
--   t and a token   it took the lock, and the holder may have others
--   0, 1            it was released, and the lock was still held by others, or not any more
--   gone            it was given up before it came

-- include: lock

local lock, tokens, latch, holder = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local given_up, has_others, life, channel = ARGV[2] == '', ARGV[3] == '1', ARGV[4], ARGV[5]
local is_latest, is_latch_over, need = ARGV[6] == '1', ARGV[7] == '1', ARGV[8]
local held = call('HGET', lock, holder)
local known = call('GET', latch)
local latest = token_of(call('GET', tokens))
if known == '0' or known == '1' then return 1 end
if known == 'gone' then return 0 end

local mine = held
if has_others or not given_up then
  local token = token_of(ARGV[2])
  -- Of several holds only the latch says that this one was not released before.
  if has_others and not is_latch_over then token = token_of(string.sub(known or '', 2)) end
  mine = held and token > 0 and (latest == token or latest == 0 and is_latest)
end
if not mine then
  if given_up then call('SET', latch, 'gone', 'PX', life) end
  return 0
end

local count = has_others and count_of(held) - 1 or 0
if count > 0 then
  call('HSET', lock, holder, text(count))
  if need ~= '' then call('PEXPIRE', lock, need) end
else
  call('HDEL', lock, holder)
end
-- It is released, even if there is no memory left to remember it, or no permission to tell it.
redis.pcall('SET', latch, count > 0 and '0' or '1', 'PX', life)
if count > 0 then return 1 end
local told = redis.pcall('PUBLISH', channel, '0')
return type(told) == 'number' and 2 + told or 1
