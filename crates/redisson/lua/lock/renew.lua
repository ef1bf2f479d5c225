-- Renews the lease of a lock that is still held since the same acquisition.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- KEYS[2]  the latest fencing token, a string
-- KEYS[3]  the latch of the request, a string: see lua/lock/release.lua
-- ARGV[1]  the holder
-- ARGV[2]  the fencing token of the hold
-- ARGV[3]  the lease in milliseconds
-- ARGV[4]  1 if the holder may hold the lock by other requests as well; 0 if this is its only one
-- ARGV[5]  1 if all other holds of the holder have the same token
--
-- Reply: 1 if the lock is held, 0 if it was lost or released

-- include: lock

local lock, token_key, latch, is_reentrant = KEYS[1], KEYS[2], KEYS[3], ARGV[4] == '1'
local token, lease = ARGV[2] + 0, ARGV[3] + 0
local held = call('HGET', lock, ARGV[1])
local latch_state = is_reentrant and call('GET', latch)
local latest = to_integer(call('GET', token_key), 0)
if not held or latch_state and string.sub(latch_state, 1, 1) ~= 't' then return 0 end
if latest ~= token and (latest ~= 0 or ARGV[5] ~= '1') then return 0 end

if call('PTTL', lock) < lease then call('PEXPIRE', lock, text(lease)) end
-- A server without free memory refuses new keys. The lease was renewed all the same.
if latest == 0 then
  redis.pcall('SET', token_key, text(token), 'PX', TOKEN_EXPIRY)
else
  call('PEXPIRE', token_key, TOKEN_EXPIRY)
end
if latch_state then
  call('PEXPIRE', latch, text(math.max(lease, 10000)))
elseif is_reentrant then
  redis.pcall('SET', latch, 't' .. text(token), 'PX', text(math.max(lease, 10000)))
end
return 1
