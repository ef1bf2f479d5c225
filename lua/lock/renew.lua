-- Makes a lease last longer, if the lock is still held by the same acquisition.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- KEYS[2]  the latest fencing token, a string
-- ARGV[1]  the holder
-- ARGV[2]  the fencing token that it was given
-- ARGV[3]  the lease in milliseconds
--
-- Reply: 1 if it is held, 0 if it was lost

-- include: lock

local lock, tokens, token, lease = KEYS[1], KEYS[2], ARGV[2] + 0, ARGV[3] + 0
local held = call('HGET', lock, ARGV[1])
local latest = token_of(call('GET', tokens))
if not held or (latest ~= token and latest ~= 0) then return 0 end

extend(lock, lease)
-- A server without memory left takes this not, and the lease all the same.
if latest == 0 then
  redis.pcall('SET', tokens, text(token), 'PX', TOKEN_LIFE)
else
  call('PEXPIRE', tokens, TOKEN_LIFE)
end
return 1
