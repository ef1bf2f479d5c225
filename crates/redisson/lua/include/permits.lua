-- Reads the state of a limiter: its rate, its remaining permits and its grants.
--
-- Uses   call          redis.call
--        own           the caller's generation: 1, 2 or 3
--        requested     how many permits the caller wants
--        test_now      the time in tests, or false
--        is_read_only  whether nothing may be written
--        chosen_at     when the callers' process chose its rate, or nil
-- Gives  config, rate, interval, keep_alive  the rate
--        now, ms, ms_up                      the time in microseconds; in milliseconds, rounded
--                                            down and up
--        expired_until                       grants with this score or a lower one have expired
--        value_key, permits_key              the keys of the budget that this client uses
--        remaining                           how many permits are left
--        needs_write                         whether the state must be stored even if nothing is
--                                            granted
--        text(integer)                       the integer with all its digits
--        permits_of(member)                  the permits of a grant
--        still_counts(member)                whether it is a grant that has not expired
--        count_remaining()                   the remaining permits, counted from the grants
--        store(is_grant)                     stores `remaining`, and sets the expiry of all keys
--
-- KEYS[1]  hash: the rate
--            rate           the permits in an interval
--            interval       in milliseconds
--            type           0: one budget for all clients, 1: one budget for each client
--            keepAliveTime  in milliseconds, if it was set
--            epoch          for budgets of each client: an id, which changes whenever the counts
--                           of all clients are to be cleared. After ":", if a shorter interval was
--                           replaced: the score until which grants had expired under it
--            countsExpire   "rate interval type" if no client of Redisson uses the limiter; these
--                           clients leave the field alone when they set another rate, and recent
--                           ones write a keepAliveTime of 0, as this crate never does
--            chosenAt       the microseconds at which a process chose this rate, or at which it was set
--                           by hand: of the processes that carry a rate, the latest choice stands
-- KEYS[2]  string: the remaining permits of the budget for all clients
-- KEYS[3]  sorted set: the grants of the budget for all clients, scored by milliseconds
-- KEYS[4]  as KEYS[2], for the budget of this client
-- KEYS[5]  as KEYS[3], for the budget of this client
-- KEYS[6]  string: the epoch, rate and interval that KEYS[4] and KEYS[5] belong to
-- KEYS[7]  sorted set: the fair callers of all clients that wait, as the members of KEYS[3] that
--          they want, scored by the microseconds of their arrival
-- KEYS[8]  sorted set: the clients of these callers, the first 8 bytes of the ids of their grants,
--          scored by the milliseconds until which they count as alive
-- KEYS[9]  as KEYS[7], for the budget of this client
-- KEYS[10] string: "interval type epoch" of a rate that `expire` lets expire, in case a rate is set
--          while its grants still count
--
-- A grant is struct.pack('<Bc0I4', length of the id, id, permits), as in Redisson since 3.17.0, to
-- 3.21.0 with ids of 8 bytes. In the second generation, Redisson 3.13.3 to 3.16.3, it is
-- struct.pack('<fI4', random, permits). Redisson to 3.13.2 has no set, 3.16.4 to 3.16.8 a grant of
-- its own, struct.pack('<Lc0I4', 8, id, permits), which counts as 0. Scores are rounded up, so that
-- no grant expires early.
--
-- Replies without a result: -1 there is no rate, -2 the caller wants more than the rate, -3 the
-- hash does not hold a rate, -4 the rate was chosen before chosen_at; clients of Redisson count it
-- as -5 the first, -6 the second, -7 the third generation does, -8 none does.

local function text(integer) return string.format('%.0f', integer) end

local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'epoch',
  'countsExpire', 'chosenAt')
if not config[1] or not config[2] or not config[3] then return -1 end
if chosen_at and (tonumber(config[7] or nil) or 0) < chosen_at then return -4 end
local rate, interval = tonumber(config[1]), tonumber(config[2])
local keep_alive = tonumber(config[4] or 0)
if not rate or not interval or not keep_alive then return -3 end
if config[3] ~= '0' and config[3] ~= '1' then return -3 end
if rate < 0 or rate > 9007199254740991 or rate % 1 ~= 0 then return -3 end
if interval < 1 or interval > 315360000000 or interval % 1 ~= 0 then return -3 end
if keep_alive < 0 or keep_alive > 315360000000 or keep_alive % 1 ~= 0 then return -3 end
if requested > rate then return -2 end

local now = test_now
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
now = now + 0
local ms, ms_up = math.floor(now / 1000), math.ceil(now / 1000)
local expired_until = ms - interval
local value_key, permits_key, epoch_key, epoch = KEYS[2], KEYS[3], nil, nil
local needs_write = false
-- The counts of one client always expire, because only that client uses them.
local counts_expire = config[3] == '1'
  or config[4] ~= '0' and config[6] == config[1] .. ' ' .. config[2] .. ' ' .. config[3]

-- A member in another format counts as 0 permits.
local function permits_of(member)
  local size = #member
  if size == 8 or (string.byte(member) or 0) + 5 == size then
    return (struct.unpack('<I4', member, size - 3))
  end
  return 0
end

-- Whether this grant counts.
local function still_counts(member)
  local score = call('ZSCORE', permits_key, member)
  return score and score + 0 > expired_until
end

-- Counts the remaining permits from the grants that have not expired.
local function count_remaining()
  local remaining = rate
  needs_write = true
  local counting = call('ZRANGEBYSCORE', permits_key, '(' .. text(expired_until), '+inf')
  for _, member in ipairs(counting) do
    remaining = remaining - permits_of(member)
  end
  return remaining
end

local is_stale, is_cleared = false, false
if config[3] == '1' then
  value_key, permits_key, epoch_key = KEYS[4], KEYS[5], KEYS[6]
  epoch = (config[5] or '') .. ' ' .. config[1] .. ' ' .. config[2]
  local known = call('GET', epoch_key)
  if known ~= epoch then
    is_stale = true
    -- Under another epoch, all grants are void.
    is_cleared = known and string.match(known, '^[^ :]*') ~= string.match(epoch, '^[^ :]*')
    if is_cleared and not is_read_only then call('DEL', value_key, permits_key) end
  end
  -- A later score was written before the clock went back.
  local expired_before = tonumber(string.match(config[5] or '', ':(%d+)$') or nil)
  if expired_before and expired_before < ms then
    expired_until = math.max(expired_until, expired_before)
  end
end
local remaining = tonumber(call('GET', value_key) or nil)
local oldest = call('ZRANGE', permits_key, '0', '0', 'WITHSCORES')
local size = #(oldest[1] or '')
if not counts_expire and size ~= (own == 2 and 8 or 21) and (own == 2 or size ~= 13) then
  -- include: generation
end
-- Permits that are neither in the value nor in the set. They count as granted now.
local missing = 0
local has_expired = oldest[2] and oldest[2] + 0 <= expired_until
if is_cleared then
  remaining, needs_write = rate, true
elseif not remaining or is_stale or remaining % 1 ~= 0 or remaining > rate
  or oldest[1] and remaining + permits_of(oldest[1]) > rate then
  -- The value is missing, out of date, no integer (`% 1` is also not 0 for infinity), or too high:
  -- Redisson's `release` raises the value and leaves the grants in the set.
  remaining = count_remaining()
elseif has_expired then
  local expired = call('ZRANGEBYSCORE', permits_key, '-inf', text(expired_until))
  for _, member in ipairs(expired) do
    remaining = remaining + permits_of(member)
  end
  if remaining > rate then
    remaining = count_remaining()
  elseif remaining < rate and #expired == call('ZCARD', permits_key) then
    missing = rate - remaining
  end
elseif not oldest[1] and remaining < rate then
  missing = rate - remaining
end
if missing > rate then remaining, missing = 0, rate end
needs_write = needs_write or missing > 0

-- The keys expire once no grant counts any more: one interval after the newest grant. They live one
-- more interval for the grants that the fast path of acquire.lua adds without a new expiry.
-- A rate may expire earlier: its grants still count if it is set again. The counts of a limiter
-- that is shared with Redisson do not expire: its scripts set no expiry, and remove ours from one
-- of the two keys.
local function store(is_grant)
  if has_expired then
    call('ZREMRANGEBYSCORE', permits_key, '-inf', text(expired_until))
  end
  if missing > 0 then
    local id = struct.pack('>I8c8', now, 'missing_')
    local grant = struct.pack('<Bc0I4', 16, id, math.min(missing, 4294967295))
    call('ZADD', permits_key, text(ms_up), grant)
  end
  local counts = interval
  local newest = call('ZRANGE', permits_key, '-1', '-1', 'WITHSCORES')[2]
  if newest then counts = math.min(math.max(counts, newest + interval - ms), 315360000000) end
  local expiry = counts + interval + math.min(interval, 60000) + 1000
  if keep_alive > 0 and is_grant then
    -- Callers that wait for the last permits still find the rate when they ask again.
    local kept = math.max(keep_alive, counts + math.min(interval, 1000) + 100)
    if call('PTTL', KEYS[1]) < kept then call('PEXPIRE', KEYS[1], text(kept)) end
  end
  if not counts_expire then
    local rate_expiry = call('PTTL', KEYS[1])
    if rate_expiry < 0 then
      call('SET', value_key, text(remaining))
      call('PERSIST', permits_key)
      return
    end
    expiry = math.max(expiry, rate_expiry)
  end
  expiry = text(expiry)
  call('SET', value_key, text(remaining), 'PX', expiry)
  call('PEXPIRE', permits_key, expiry)
  if epoch then call('SET', epoch_key, epoch, 'PX', expiry) end
end
