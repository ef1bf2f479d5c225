-- Acquires a lock if no other holder has it.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- KEYS[2]  the latest fencing token, a string
-- KEYS[3]  the latch of this request, a string: see lua/lock/release.lua
-- ARGV[1]  the holder
-- ARGV[2]  the lease in milliseconds
-- ARGV[3]  1 if the holder may hold the lock by other requests as well; 0 if this is its only one
--
-- Reply: {1, fencing token} if the holder has the lock; {0, milliseconds until the lease of another
--        holder ends, or -1 if it never ends}; {-1, 0} if the request was given up before
--
-- If the same request comes again because its reply was lost, it counts once.

-- include: lock

local lock, token_key, latch, holder = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local lease, is_reentrant = ARGV[2] + 0, ARGV[3] == '1'
local held = call('HGET', lock, holder)
local latch_state = call('GET', latch)
local token = to_integer(call('GET', token_key), 0)

local was_granted = latch_state and string.sub(latch_state, 1, 1) == 't'
if latch_state and not was_granted then return { -1, 0 } end
if not held and call('EXISTS', lock) == 1 then return { 0, call('PTTL', lock) } end

if held and call('PTTL', lock) < lease then call('PEXPIRE', lock, text(lease)) end
if not held then
  call('HSET', lock, holder, '1')
  local expires = redis.pcall('PEXPIRE', lock, text(lease))
  -- No lock is left without an expiry. The second PEXPIRE fails the call with the server's error.
  if type(expires) == 'table' then
    call('DEL', lock)
    call('PEXPIRE', lock, text(lease))
  end
elseif is_reentrant and not was_granted then
  call('HSET', lock, holder, text(to_integer(held, 1) + 1))
end
if not held or token == 0 then
  local time = call('TIME')
  token = math.max(token + 1, time[1] * 1000000 + time[2])
  call('SET', token_key, text(token), 'PX', TOKEN_EXPIRY)
end
-- The latch lives at least as long as the same call may be repeated: 10 s.
if is_reentrant then call('SET', latch, 't' .. text(token), 'PX', text(math.max(lease, 10000))) end
return { 1, token }
