-- The sliding log: whether costs fit into every quota of one key; charges those that do.
--
-- KEYS[1]  the log, a sorted set
-- ARGV[1]  now in microseconds since the epoch; empty: the server's own clock (tests fill it)
-- ARGV[2]  expiry in milliseconds: the longest window and at least SLICE * 2 more
-- ARGV[3]  n, the number of quotas, at least 1
-- ARGV[4]  ... n pairs: max, window in microseconds (a multiple of 1000)
-- then     one or more costs, answered in order, as if each had come alone; 0 only looks
--
-- Reply: one string of little-endian 64-bit integers, for each cost
--   now, verdict (0 denied, 1 allowed, 2 never), retry after in microseconds,
--   and for each quota: units remaining, reset after in microseconds
--
-- One member holds all takes of a millisecond. Its score is the instant of the last of them; the
-- member itself is a byte that no text begins with, and six big-endian integers of 7 bytes, so that
-- members of one score are in the order of their totals:
--   total    running total of all costs, with this entry, modulo 2^52
--   base     the same before this entry: the sum inside a window is one subtraction
--   floor    the base of the oldest entry of the set
--   since    the score of the oldest entry of the set
--   stamp    this entry's score, so that nobody has to ask for it
--   horizon  the longest window when this entry was written
-- Entries that have left the longest window are removed only when the set is full. A set whose newest
-- member is anything else is started afresh at the next charge.

local ENTRY, ENTRY_SIZE, MARK = '>BI7I7I7I7I7I7', 43, 247
local MODULUS = 4503599627370496
local MILLISECOND = 1000
-- The expiry is set once in each slice of time, about a second, so it has to last two slices more.
local SLICE = 1048576

local key, call = KEYS[1], redis.call

-- `now` also as text, for commands: formatting a number is slower, and not exact by default.
local now_text = ARGV[1]
local now
if now_text == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  now_text = time[1] .. string.sub('00000' .. time[2], -6)
else
  now = now_text + 0
end

local total, base, floor, since, stamp, horizon = 0, 0, 0, now, now, 0
local stale = false
local newest = call('ZRANGE', key, '-1', '-1')[1]
if newest then
  local mark
  if #newest == ENTRY_SIZE then
    mark, total, base, floor, since, stamp, horizon = struct.unpack(ENTRY, newest)
  end
  if mark ~= MARK then
    stale = true
  elseif stamp > now then
    -- The clock went back: what lies in its future counts as of now.
    local first = call('ZRANGEBYSCORE', key, now_text, '+inf', 'LIMIT', '0', '1')[1]
    if first and #first == ENTRY_SIZE then
      local _
      _, _, base = struct.unpack(ENTRY, first)
    end
    if since > now then since = now end
    stamp, newest = now, struct.pack(ENTRY, MARK, total, base, floor, since, now, horizon)
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

-- The quotas as a list, with one small table for each:
--   [1] max  [2] window  [3] units used in it  [4] stamp of the oldest entry in it  [5] next quota
-- Numbers instead of names, and no second table: both show in the time of a call.
local quotas, longest
local first_cost = 4 + 2 * ARGV[3]
for at = first_cost - 2, 4, -2 do
  local window = ARGV[at + 1] + 0
  local first_base, first_stamp = floor, since
  if since <= now - window then
    local after = '(' .. string.format('%.0f', now - window)
    local first = call('ZRANGEBYSCORE', key, after, '+inf', 'LIMIT', '0', '1')[1]
    first_base, first_stamp = total, now
    if first and #first == ENTRY_SIZE then
      local _
      _, _, first_base, _, _, first_stamp = struct.unpack(ENTRY, first)
    end
  end
  quotas = { ARGV[at] + 0, window, (total - first_base) % MODULUS, first_stamp, quotas }
  if not longest or window >= longest[2] then longest = quotas end
end

-- What is stored is `newest`, `stored_total` and `stamp`; `total`, `last` and what the quotas have
-- used run on with the costs.
local stored_total, last = total, stamp
local merges = newest and stamp - stamp % MILLISECOND == now - now % MILLISECOND
if not merges then base = total end

local reply, replies
for at = first_cost, #ARGV do
  local cost = ARGV[at] + 0
  local verdict, retry = 1, 0
  local quota = quotas
  repeat
    local excess = quota[3] + cost - quota[1]
    if excess > 0 and cost > 0 then
      if cost > quota[1] then
        verdict, retry = 2, 0
        break
      end
      verdict = 0
      -- When enough has left the window: the stamp of the last entry that has to. Every entry holds
      -- at least one unit, so one too many is gone with the oldest.
      local leaves = quota[4]
      if excess > 1 then
        -- By rank, in the set; what this very call has charged is not in it yet, and stamped now.
        leaves = now
        local low, high = 0, newest and call('ZCARD', key) or 0
        if merges and total ~= stored_total then high = high - 1 end
        while low < high do
          local middle = math.floor((low + high) / 2)
          local entry = call('ZRANGE', key, middle, middle)[1]
          local entry_total, entry_stamp, _ = total, now
          if #entry == ENTRY_SIZE then
            _, entry_total, _, _, _, entry_stamp = struct.unpack(ENTRY, entry)
          end
          if (total - entry_total) % MODULUS + cost > quota[1] then
            low = middle + 1
          else
            high, leaves = middle, entry_stamp
          end
        end
      end
      local wait = leaves + quota[2] - now
      if wait > retry then retry = wait end
    end
    quota = quota[5]
  until not quota

  local charges = verdict == 1 and cost > 0
  if charges then
    if not newest or (merges and since == stamp) then since = now end
    total = (total + cost) % MODULUS
    last = now
  end

  local answer
  quota = quotas
  repeat
    local used = quota[3]
    if charges then
      if used == 0 or (merges and quota[4] == stamp) then quota[4] = now end
      used = used + cost
      quota[3] = used
    end
    local remaining, reset = quota[1] - used, 0
    if remaining < 0 then remaining = 0 end
    if used > 0 and last + quota[2] > now then reset = last + quota[2] - now end
    if answer then
      answer = answer .. struct.pack('<I8I8', remaining, reset)
    else
      answer = struct.pack('<I8I8I8I8I8', now, verdict, retry, remaining, reset)
    end
    quota = quota[5]
  until not quota
  if at == first_cost then
    reply = answer
  else
    replies = replies or { reply }
    replies[#replies + 1] = answer
  end
end

if total ~= stored_total then
  if stale then call('DEL', key) end
  local window = longest[2]
  if since <= now - window then
    local bound = window / MILLISECOND
    if longest[1] < bound then bound = longest[1] end
    if (total - floor) % MODULUS > bound then
      call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - window))
      floor, since = (total - longest[3]) % MODULUS, longest[4]
    end
  end
  call('ZADD', key, now_text, struct.pack(ENTRY, MARK, total, base, floor, since, now, window))
  -- After the new one, so that the key, and with it the expiry, is there all the time.
  if merges then call('ZREMRANGEBYRANK', key, '-2', '-2') end
  if not newest or window ~= horizon or stamp - stamp % SLICE ~= now - now % SLICE then
    call('PEXPIRE', key, ARGV[2])
  end
end

return replies and table.concat(replies) or reply
