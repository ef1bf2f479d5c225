-- Makes a lease last longer, if the lock is still held by the same acquisition.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- KEYS[2]  the latest fencing token, a string
-- KEYS[3]  what became of the request that took it, a string
-- ARGV[1]  the holder
-- ARGV[2]  the fencing token that it was given
-- ARGV[3]  the lease in milliseconds
-- ARGV[4]  1 if the holder may hold it by other requests too; 0 if this is its only one
-- ARGV[5]  1 if the holder knows of no request of its own that took it anew since
--
-- Reply: 1 if it is held, 0 if it was lost or released

-- include: lock

local lock, tokens, latch, token, lease = KEYS[1], KEYS[2], KEYS[3], ARGV[2] + 0, ARGV[3] + 0
local held = call('HGET', lock, ARGV[1])
local known = ARGV[4] == '1' and call('GET', latch)
local latest = token_of(call('GET', tokens))
if not held or known and string.sub(known, 1, 1) ~= 't' then return 0 end
if latest ~= token and (latest ~= 0 or ARGV[5] ~= '1') then return 0 end

extend(lock, lease)
-- A server without memory left takes no new keys, and the lease all the same.
if latest == 0 then
  redis.pcall('SET', tokens, text(token), 'PX', TOKEN_LIFE)
else
  call('PEXPIRE', tokens, TOKEN_LIFE)
end
if known then
  call('PEXPIRE', latch, latch_life(lease))
elseif ARGV[4] == '1' then
  redis.pcall('SET', latch, 't' .. text(token), 'PX', latch_life(lease))
end
return 1
