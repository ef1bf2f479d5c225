-- The state of a rate limiter: its rate, the permits that are left, and those that are granted.
--
-- Uses  KEYS[1] to KEYS[6], `call`, `n` permits that are asked for, `given_now`, the time in tests, and `reads`, whether
--       nothing may be written.
-- Gives text, rate, interval, now (microseconds), ms and ms_up (milliseconds, rounded down and up), left, lost (permits
--       that are missing), permits_key, broken (whether something has to be written even if nothing is granted), weight(),
--       write().
--
-- KEYS[1]  hash: rate, interval in milliseconds, type (0: one budget for all, 1: one for each client), and if they
--          were set keepAliveTime in milliseconds, epoch, which is another one whenever counts are to be cleared, and
--          countsExpire: rate, interval and type, with blanks, if no Java client counts here; a Java client that sets
--          another rate leaves it as it is, and a recent one that sets this rate writes keepAliveTime 0, as ours
--          never does
-- KEYS[2]  string: the permits that are left of one budget for all      KEYS[4]  the same of this client
-- KEYS[3]  sorted set: what was granted, scored by milliseconds         KEYS[5]  the same of this client
-- KEYS[6]  string: for which epoch, rate and interval the client's permits were counted
-- KEYS[7]  sorted set: fair callers that wait, as members that they would be granted, by microseconds of their arrival
-- KEYS[8]  sorted set: the clients of these, the first 8 bytes of their identities, by the milliseconds until which
--          they are alive
-- KEYS[9]  fair callers of this client that wait, where each has a budget of its own
--
-- A member of the set is '<Bc0I4': the length of its identity, the identity, its permits; before Redisson 3.30 it was
-- a float and the permits. A score is rounded up, so that nothing leaves before its time.
--
-- Replies of scripts that cannot go on: -1 there is no rate, -2 more than the rate, -3 the hash makes no sense.

local function text(integer) return string.format('%.0f', integer) end

local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'epoch', 'countsExpire')
if not config[1] or not config[2] or not config[3] then return -1 end
local rate, interval, keep_alive = tonumber(config[1]), tonumber(config[2]), tonumber(config[4] or 0)
if not rate or not interval or not keep_alive or (config[3] ~= '0' and config[3] ~= '1') then return -3 end
if rate < 0 or rate > 9007199254740991 or rate % 1 ~= 0 then return -3 end
if interval < 1 or interval > 315360000000 or interval % 1 ~= 0 then return -3 end
if keep_alive < 0 or keep_alive > 315360000000 or keep_alive % 1 ~= 0 then return -3 end
if n > rate then return -2 end

local now = given_now
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
now = now + 0
local ms, ms_up = math.floor(now / 1000), math.ceil(now / 1000)
local value_key, permits_key, mark_key, mark = KEYS[2], KEYS[3], nil, nil
local broken = false
-- Whether what is counted may expire: of one client's always, since no other counts there.
local expires = config[3] == '1'
  or config[4] ~= '0' and config[6] == config[1] .. ' ' .. config[2] .. ' ' .. config[3]

-- The permits of a member; of one that is not ours none.
local function weight(member)
  local size = #member
  if size == 8 or (string.byte(member) or 0) + 5 == size then return (struct.unpack('<I4', member, size - 3)) end
  return 0
end

-- What has to be counted one by one: all that is granted and has not left.
local function left_by_count()
  local left = rate
  broken = true
  for _, member in ipairs(call('ZRANGEBYSCORE', permits_key, '(' .. text(ms - interval), '+inf')) do
    left = left - weight(member)
  end
  return left
end

local stale, void = false, false
if config[3] == '1' then
  value_key, permits_key, mark_key = KEYS[4], KEYS[5], KEYS[6]
  mark = (config[5] or '') .. ' ' .. config[1] .. ' ' .. config[2]
  local known = call('GET', mark_key)
  if known ~= mark then
    stale = true
    -- Another epoch: what was counted is void.
    void = known and string.match(known, '^%S*') ~= (config[5] or '')
    if void and not reads then call('DEL', value_key, permits_key) end
  end
end
local left = tonumber(call('GET', value_key) or nil)
local oldest = call('ZRANGE', permits_key, '0', '0', 'WITHSCORES')
-- Permits that are missing, with nothing that says since when: they count from now on.
local lost = 0
local leaving = oldest[2] and oldest[2] + 0 <= ms - interval
if void then
  left, broken = rate, true
elseif not left or stale or left % 1 ~= 0 or left > rate
  or oldest[1] and left + weight(oldest[1]) > rate then
  -- Also a value that is no number or infinite, of which nothing is left by dividing; and one that a Java client has
  -- released permits to without taking the grants out of the set.
  left = left_by_count()
elseif leaving then
  local gone = call('ZRANGEBYSCORE', permits_key, '-inf', text(ms - interval))
  for _, member in ipairs(gone) do
    left = left + weight(member)
  end
  if left > rate then
    left = left_by_count()
  elseif left < rate and #gone == call('ZCARD', permits_key) then
    lost = rate - left
  end
elseif not oldest[1] and left < rate then
  lost = rate - left
end
if lost > rate then left, lost = 0, rate end
broken = broken or lost > 0

-- Writes what is left, and lets all that counts expire when it has ceased to: an interval after the newest grant, and in
-- advance for the grants of another interval, see the common way of acquire. The rate may be forgotten earlier: what was
-- granted under it counts all the same, if it is set anew. Where Java clients count, too, there is no expiry: they set
-- none, and take ours away from one half.
local function write(is_grant)
  if leaving then call('ZREMRANGEBYSCORE', permits_key, '-inf', text(ms - interval)) end
  if lost > 0 then
    local identity = struct.pack('>I8c8', now, 'the lost')
    call('ZADD', permits_key, text(ms_up), struct.pack('<Bc0I4', 16, identity, math.min(lost, 4294967295)))
  end
  local counts = interval
  local newest = call('ZRANGE', permits_key, '-1', '-1', 'WITHSCORES')[2]
  if newest then counts = math.min(math.max(counts, newest + interval - ms), 315360000000) end
  local expiry = counts + interval + math.min(interval, 60000) + 1000
  if keep_alive > 0 and is_grant then
    -- Those who wait for the permits to leave find a rate.
    local kept = math.max(keep_alive, counts + math.min(interval, 1000) + 100)
    if call('PTTL', KEYS[1]) < kept then call('PEXPIRE', KEYS[1], text(kept)) end
  end
  if not expires then
    local configured = call('PTTL', KEYS[1])
    if configured < 0 then
      call('SET', value_key, text(left))
      call('PERSIST', permits_key)
      return
    end
    expiry = math.max(expiry, configured)
  end
  expiry = text(expiry)
  call('SET', value_key, text(left), 'PX', expiry)
  call('PEXPIRE', permits_key, expiry)
  if mark then call('SET', mark_key, mark, 'PX', expiry) end
end
