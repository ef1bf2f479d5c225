-- Takes a lock, if nobody else holds it.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- KEYS[2]  the latest fencing token, a string
-- KEYS[3]  what became of this request, a string
-- ARGV[1]  the holder
-- ARGV[2]  the lease in milliseconds
-- ARGV[3]  1 if the holder may hold it by an earlier request; 0 if this is its only one
--
-- Reply: {1, fencing token} if it is held now; {0, milliseconds until the lease of whoever holds it ends, -1 if
-- it never does}; {-1, 0} if the request was given up before it came
--
-- The same request may come twice, when the reply to the first was lost: it counts once.

-- include: lock

local lock, tokens, latch, holder = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local lease, has_others = ARGV[2] + 0, ARGV[3] == '1'
local held = call('HGET', lock, holder)
local known = call('GET', latch)
local token = token_of(call('GET', tokens))

local taken = known and string.sub(known, 1, 1) == 't'
if known and not taken then return { -1, 0 } end
if not held and call('EXISTS', lock) == 1 then return { 0, call('PTTL', lock) } end

if not held or token == 0 then
  local time = call('TIME')
  token = math.max(token + 1, time[1] * 1000000 + time[2])
  keep(tokens, token)
end
if not held then
  call('HSET', lock, holder, '1')
elseif has_others and not taken then
  call('HSET', lock, holder, text(count_of(held) + 1))
end
extend(lock, lease)
if has_others then call('SET', latch, 't' .. text(token), 'PX', latch_life(lease)) end
return { 1, token }
