-- The sliding log: whether costs fit into every quota of one key; charges those that do.
--
-- KEYS[1]  the log, a sorted set
-- ARGV[1]  now in microseconds since the epoch; empty: the server's own clock (tests fill it)
-- ARGV[2]  expiry in milliseconds: the longest window and at least SLICE * 2 more
-- ARGV[3]  n, the number of quotas, at least 1
-- ARGV[4]  ... n pairs: max, window in microseconds (a multiple of 1000)
-- then     one or more costs, answered in order, as if each had come alone; 0 only looks
--
-- Reply: one string of little-endian 64-bit integers: now, then for each cost
--   verdict (0 denied, 1 allowed, 2 never), retry after in microseconds,
--   and for each quota: units remaining, reset after in microseconds
--
-- One member holds all takes of a millisecond. Its score is the instant of the last of them; the
-- member itself is six integers of 7 bytes:
--   total    running total of all costs, with this entry, modulo 2^52
--   base     the same before this entry: the sum inside a window is one subtraction
--   floor    the base of the oldest entry of the set
--   since    the score of the oldest entry of the set
--   stamp    this entry's score, so that nobody has to ask for it
--   horizon  the longest window when this entry was written
-- Entries that have left the longest window are removed only when the set is full. A key that holds
-- anything else in a sorted set is started afresh.

local ENTRY, ENTRY_SIZE = '<I7I7I7I7I7I7', 42
local MODULUS = 4503599627370496
local MILLISECOND = 1000
-- The expiry is set once in each slice of time, about a second, so it has to last two slices more.
local SLICE = 1048576

local key, call, pack, unpack = KEYS[1], redis.call, struct.pack, struct.unpack

local now_text = ARGV[1]
if now_text == '' then
  local time = call('TIME')
  now_text = time[1] .. string.sub('00000' .. time[2], -6)
end
local now = now_text + 0

local total, base, floor, since, stamp, horizon = 0, 0, 0, now, now, 0
local stale = false
local newest = call('ZRANGE', key, '-1', '-1')[1]
if newest then
  if #newest == ENTRY_SIZE then
    total, base, floor, since, stamp, horizon = unpack(ENTRY, newest)
  else
    stale = true
  end
  if stamp > now then
    -- The clock went back: what lies in its future counts as of now.
    local first = call('ZRANGEBYSCORE', key, now_text, '+inf', 'LIMIT', '0', '1')[1]
    if first and #first == ENTRY_SIZE then
      local _
      _, base = unpack(ENTRY, first)
    end
    if since > now then since = now end
    stamp, newest = now, pack(ENTRY, total, base, floor, since, now, horizon)
    call('ZREMRANGEBYSCORE', key, now_text, '+inf')
    call('ZADD', key, now_text, newest)
    call('PEXPIRE', key, string.format('%.0f', (horizon + 2 * SLICE) / MILLISECOND))
  elseif now >= stamp + horizon then
    stale = true
  end
  if stale then
    newest = nil
    total, base, floor, since, stamp = 0, 0, 0, now, now
  end
end

local quotas = ARGV[3] + 0
local longest, longest_max, longest_at = 0, 0, 1
local used, oldest = {}, {}
for q = 1, quotas do
  local max, window = ARGV[2 + 2 * q] + 0, ARGV[3 + 2 * q] + 0
  local first_base, first_stamp = floor, since
  if since <= now - window then
    local after = '(' .. string.format('%.0f', now - window)
    local first = call('ZRANGEBYSCORE', key, after, '+inf', 'LIMIT', '0', '1')[1]
    first_base, first_stamp = total, now
    if first and #first == ENTRY_SIZE then
      local _
      _, first_base, _, _, first_stamp = unpack(ENTRY, first)
    end
  end
  used[q], oldest[q] = (total - first_base) % MODULUS, first_stamp
  if window > longest then longest, longest_max, longest_at = window, max, q end
end

-- What is stored now is `newest`, `stored_total` and `stamp`; `total`, `last` and `used` run on with
-- the costs.
local stored_total, last = total, stamp
local merges = newest and stamp - stamp % MILLISECOND == now - now % MILLISECOND
if not merges then base = total end

local reply = pack('<I8', now)
for c = 4 + 2 * quotas, #ARGV do
  local cost = ARGV[c] + 0
  local verdict, retry = 1, 0
  for q = 1, quotas do
    local max = ARGV[2 + 2 * q] + 0
    if cost > max then
      verdict, retry = 2, 0
      break
    end
    local excess = used[q] + cost - max
    if excess > 0 then
      verdict = 0
      -- Every entry holds at least one unit, so one too many is gone with the oldest.
      local leaves = oldest[q]
      if excess > 1 then
        -- The oldest entry with whose leaving there is room, by its rank; `now` is what this very
        -- call has charged, which is not in the set yet.
        leaves = now
        local low, high = 0, newest and call('ZCARD', key) or 0
        if merges and total ~= stored_total then high = high - 1 end
        while low < high do
          local middle = math.floor((low + high) / 2)
          local entry = call('ZRANGE', key, middle, middle)[1]
          local entry_total, entry_stamp, _ = total, now
          if #entry == ENTRY_SIZE then
            entry_total, _, _, _, entry_stamp = unpack(ENTRY, entry)
          end
          if (total - entry_total) % MODULUS + cost > max then
            low = middle + 1
          else
            high, leaves = middle, entry_stamp
          end
        end
      end
      local wait = leaves + (ARGV[3 + 2 * q] + 0) - now
      if wait > retry then retry = wait end
    end
  end

  if verdict == 1 and cost > 0 then
    total = (total + cost) % MODULUS
    for q = 1, quotas do
      if used[q] == 0 or (merges and oldest[q] == stamp) then oldest[q] = now end
      used[q] = used[q] + cost
    end
    if not newest or (merges and since == stamp) then since = now end
    last = now
  end

  reply = reply .. pack('<I8I8', verdict, retry)
  for q = 1, quotas do
    local remaining, reset = ARGV[2 + 2 * q] - used[q], 0
    if remaining < 0 then remaining = 0 end
    if used[q] > 0 then reset = last + ARGV[3 + 2 * q] - now end
    reply = reply .. pack('<I8I8', remaining, reset)
  end
end

if total ~= stored_total then
  if stale then call('DEL', key) end
  local bound = longest / MILLISECOND
  if longest_max < bound then bound = longest_max end
  if since <= now - longest and (total - floor) % MODULUS > bound then
    call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - longest))
    floor, since = (total - used[longest_at]) % MODULUS, oldest[longest_at]
  end
  call('ZADD', key, now_text, pack(ENTRY, total, base, floor, since, now, longest))
  if merges then call('ZREM', key, newest) end
  if not newest or longest ~= horizon or stamp - stamp % SLICE ~= now - now % SLICE then
    call('PEXPIRE', key, ARGV[2])
  end
end

return reply
