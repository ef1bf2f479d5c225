-- Releases one hold of a lock, or gives up a request that may have been granted without a reply.
--
-- KEYS[1]  the lock, a hash: its holder, and how often it is held
-- KEYS[2]  the latest fencing token, a string
-- KEYS[3]  the latch of the request, a string: see below
-- ARGV[1]  the holder
-- ARGV[2]  the fencing token of the hold; empty to give up the request
-- ARGV[3]  1 if the holder may hold the lock by other requests as well; 0 if this is its only one
-- ARGV[4]  the expiry of the latch in milliseconds
-- ARGV[5]  the channel on which the release is announced
-- ARGV[6]  1 if all other holds of the holder have the same token
-- ARGV[7]  1 if this is the first call and the lease is over, so that the latch may have expired
-- ARGV[8]  for how many milliseconds the other holds of the holder need the lock; empty if there
--          are none
-- ARGV[9]  the command that announces it: PUBLISH, or SPUBLISH in a cluster
--
-- Reply: 0 if the lock was not held by this request; 1 if it was; 2 + the number of clients that
--        received the announcement if this call has freed the lock
--
-- The latch of a request:
--   t and a token   granted, to a holder that may hold the lock by other requests as well
--   0               released, and the holder still had other holds
--   1               released, and the lock was free
--   gone            given up before it was granted

-- include: lock

local lock, token_key, latch, holder = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local gives_up, is_reentrant, expiry, channel = ARGV[2] == '', ARGV[3] == '1', ARGV[4], ARGV[5]
local have_same_token, may_latch_be_expired = ARGV[6] == '1', ARGV[7] == '1'
local needed_for = ARGV[8]
local held = call('HGET', lock, holder)
-- If the holder makes no other request and still holds the lock, this request was neither released
-- nor given up.
local latch_state = (is_reentrant or not held) and call('GET', latch)
local latest = to_integer(call('GET', token_key), 0)
if latch_state == '0' or latch_state == '1' then return 1 end
if latch_state == 'gone' then return 0 end

local is_ours = held
if is_reentrant or not gives_up then
  local token = to_integer(ARGV[2], 0)
  -- If the holder has several holds, only the latch says that this one was not released before.
  if is_reentrant and not may_latch_be_expired then
    token = to_integer(string.sub(latch_state or '', 2), 0)
  end
  is_ours = held and token > 0 and (latest == token or latest == 0 and have_same_token)
end
if not is_ours then
  if gives_up then call('SET', latch, 'gone', 'PX', expiry) end
  return 0
end

local count = is_reentrant and to_integer(held, 1) - 1 or 0
if count > 0 then
  call('HSET', lock, holder, text(count))
  if needed_for ~= '' then call('PEXPIRE', lock, needed_for) end
else
  call('HDEL', lock, holder)
end
-- The lock is released, even if the server has no memory left for the latch, or does not permit the
-- announcement.
redis.pcall('SET', latch, count > 0 and '0' or '1', 'PX', expiry)
if count > 0 then return 1 end
local listeners = announce(ARGV[9], channel)
return type(listeners) == 'number' and 2 + listeners or 1
