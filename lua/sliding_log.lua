-- The sliding log: whether costs fit into every quota of one key; charges those that do.
--
-- KEYS[1]  the log, a sorted set
-- ARGV[1]  the question, little-endian: a byte with the number of quotas, for each quota max and window in
--          microseconds, the deadline, then one or more costs, each with 2 bytes for how many takes of it there are;
--          they are answered in order, as if each had come alone, and 0 only looks. Other numbers have 7 bytes.
-- ARGV[2]  expiry in milliseconds: the longest window and at least SLICE * 2 more
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: now as an integer if it is past the deadline, in microseconds since the epoch, and then nothing has
-- happened; or one string of little-endian 64-bit integers, for each row of takes that are answered alike
--   now; verdict (0 denied, 1 allowed, 2 never) and 2^2 times their number and 2^11 times the last 20 bits of the
--   deadline, so that a reply shows whose it is; retry after in microseconds or, if they were charged, the serial
--   number of the last; and for each quota, after the last: units remaining, reset after in microseconds
--
-- One member holds all takes of a millisecond. Its score is the instant of the last of them; the
-- member itself is a byte that no text begins with, and big-endian integers of 7 bytes, so that members
-- of one score are in the order of their totals:
--   total    running total of all costs, with this entry, modulo 2^52
--   base     the same before this entry: the sum inside a window is one subtraction
--   floor    the base of the oldest entry of the set
--   since    the score of the oldest entry of the set
--   stamp    this entry's score, so that nobody has to ask for it
--   horizon  the longest window of the quotas that it was charged under
--   units    the largest max of these
--   serial   units ever charged, modulo 2^52: tells takes of one instant apart
-- and only where longer windows of earlier charges still need something of the set, the clock went back, or the
-- state of another algorithm was taken over:
--   long_window, long_units   entries inside of this window, of which so many newest units suffice
--   long_until                until when
--   begun                     takes that were charged before this are not given back
-- Entries that have left the longest window are removed only when the set is full. A set whose newest
-- member is anything else, or says what cannot be, is started afresh at the next charge. The state of another
-- algorithm is taken over as one entry.

local ENTRY, ENTRY_SIZE, MARK = '>BI7I7I7I7I7I7I7I7', 57, 247
local MORE, MORE_SIZE = '>I7I7I7I7', 28
local MODULUS = 4503599627370496
local TEN_YEARS = 315360000000000
local MILLISECOND = 1000
-- The expiry is set once in each slice of time, about a second, so it has to last two slices more.
local SLICE = 1048576

local key, call = KEYS[1], redis.call

-- `now` also as text, for commands: formatting a number is slower, and not exact by default.
local now_text = ARGV[3]
if not now_text then
  local time = call('TIME')
  local micros = time[2]
  if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
  now_text = time[1] .. micros
end
local now = now_text + 0

local question = ARGV[1]
local behind_quotas = 2 + 14 * string.byte(question)
local deadline, cost, left, at = struct.unpack('<I7I7I2', question, behind_quotas)
if now > deadline then return now end

local total, base, floor, since, stamp, horizon, units, serial, begun = 0, 0, 0, now, now, 0, 0, 0, 0
local long_window, long_units, long_until = 0, 0, 0
local stale, lump, pulled = false, false, false
local newest = redis.pcall('ZRANGE', key, '-1', '-1')
local trouble = newest.err
newest = newest[1]
if trouble then
  local raw, carried = redis.pcall('GET', key), nil
  if type(raw) == 'string' then
-- include: carried
  end
  if not carried then return redis.error_reply(trouble) end
  stale = true
  if carried.begun then begun, stamp, serial = carried.begun, carried.newest, carried.serial end
  if carried[1] then
    -- One entry, that is not in a set yet.
    lump, pulled, newest = true, carried.pulled, true
    total = carried[1][4]
    since = carried.newest
    for _, quota in ipairs(carried) do
      if quota[2] > horizon then horizon = quota[2] end
      if quota[1] > units then units = quota[1] end
    end
  end
  if not lump or now >= stamp + horizon then
    if begun <= now and stamp ~= now then serial = 0 end
    if begun <= now - now % MILLISECOND then begun = 0 end
    lump, newest = false, nil
    total, since, stamp = 0, now, now
  end
elseif newest then
  local mark
  if #newest == ENTRY_SIZE then
    mark, total, base, floor, since, stamp, horizon, units, serial = struct.unpack(ENTRY, newest)
  elseif #newest == ENTRY_SIZE + MORE_SIZE then
    mark, total, base, floor, since, stamp, horizon, units, serial = struct.unpack(ENTRY, newest)
    long_window, long_units, long_until, begun = struct.unpack(MORE, newest, ENTRY_SIZE + 1)
  end
  if mark ~= MARK or total >= MODULUS or horizon > TEN_YEARS then
    stale = true
  elseif stamp > now then
    -- The clock went back: what lies in its future counts as of now.
    local first = call('ZRANGEBYSCORE', key, now_text, '+inf', 'LIMIT', '0', '1')[1]
    if first and #first >= ENTRY_SIZE then
      local _
      _, _, base = struct.unpack(ENTRY, first)
    end
    if since > now then since = now end
    if begun <= stamp then begun = stamp + 1 end
    local lasts = horizon
    if long_window > 0 then
      if long_until > now + long_window then long_until = now + long_window end
      if long_until - now > lasts then lasts = long_until - now end
    end
    stamp, newest = now, struct.pack(ENTRY, MARK, total, base, floor, since, now, horizon, units, serial)
      .. struct.pack(MORE, long_window, long_units, long_until, begun)
    call('ZREMRANGEBYSCORE', key, now_text, '+inf')
    call('ZADD', key, now_text, newest)
    call('PEXPIRE', key, string.format('%.0f', (lasts + 2 * SLICE) / MILLISECOND))
  elseif now >= stamp + horizon and now >= long_until then
    stale = true
  end
  if stale then
    -- The serial numbers run from zero again, unless a take with such a number may have the same stamp: one of
    -- this very instant, or one from before the clock went back.
    if mark ~= MARK or begun <= now and stamp ~= now then serial = 0 end
    if mark ~= MARK or begun <= now - now % MILLISECOND then begun = 0 end
    newest = nil
    total, base, floor, since, stamp = 0, 0, 0, now, now
  end
end

-- The quotas as a list, with one small table for each:
--   [1] max  [2] window  [3] units used in it  [4] stamp of the oldest entry in it  [5] next quota
-- Numbers instead of names, and no second table: both show in the time of a call.
local quotas, longest, longest_edge
local most = 0
for at = behind_quotas - 14, 2, -14 do
  local max, window = struct.unpack('<I7I7', question, at)
  local first_base, first_stamp, edge = floor, since, nil
  if since <= now - window then
    edge = string.format('%.0f', now - window)
    local first = not lump and call('ZRANGEBYSCORE', key, '(' .. edge, '+inf', 'LIMIT', '0', '1')[1]
    first_base, first_stamp = total, now
    if first and #first >= ENTRY_SIZE then
      local _
      _, _, first_base, _, _, first_stamp = struct.unpack(ENTRY, first)
    end
  end
  if max > most then most = max end
  quotas = { max, window, (total - first_base) % MODULUS, first_stamp, quotas }
  if not longest or window >= longest[2] then longest, longest_edge = quotas, edge end
end

-- What is stored is `newest`, `stored_total` and `stamp`; `total`, `last` and what the quotas have
-- used run on with the costs.
local stored_total, stored_serial, last = total, serial, stamp
-- Also with an entry that holds nothing, since it was given back.
local merges = newest and (stamp - stamp % MILLISECOND == now - now % MILLISECOND or total == floor)
if not merges then base = total end

local reply, replies
repeat
  -- So many takes of this cost are to be answered; those that are answered alike are answered at once.
  if left == 0 then cost, left, at = struct.unpack('<I7I2', question, at) end
  local answers = left
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
        local low, high = 0, newest and not lump and call('ZCARD', key) or 0
        if lump and not (merges and total ~= stored_total)
          and (total - stored_total) % MODULUS + cost <= quota[1] then
          leaves = stamp
        end
        if merges and total ~= stored_total then high = high - 1 end
        while low < high do
          local middle = math.floor((low + high) / 2)
          local entry = call('ZRANGE', key, middle, middle)[1]
          local entry_total, entry_stamp, _ = total, now
          if #entry >= ENTRY_SIZE then
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
    elseif left > 1 and cost > 0 then
      local fits = math.floor(-excess / cost) + 1
      if fits < answers then answers = fits end
    end
    quota = quota[5]
  until not quota
  if verdict ~= 1 then answers = left end
  left = left - answers

  local charges = verdict == 1 and cost > 0
  local charged = cost * answers
  if charges then
    if not newest or (merges and since == stamp) then since = now end
    total = (total + charged) % MODULUS
    serial = (serial + charged) % MODULUS
    last, retry = now, serial
  end

  local answer
  quota = quotas
  repeat
    local used = quota[3]
    if charges then
      if used == 0 or (merges and quota[4] == stamp) then quota[4] = now end
      used = used + charged
      quota[3] = used
    end
    local remaining, reset = quota[1] - used, 0
    if remaining < 0 then remaining = 0 end
    if used > 0 and quota[1] > 0 and last + quota[2] > now then reset = last + quota[2] - now end
    if answer then
      answer = answer .. struct.pack('<I8I8', remaining, reset)
    else
      verdict = verdict + 4 * answers + deadline % 1048576 * 2048
      answer = struct.pack('<I8I8I8I8I8', now, verdict, retry, remaining, reset)
    end
    quota = quota[5]
  until not quota
  if reply then
    replies = replies or { reply }
    replies[#replies + 1] = answer
  else
    reply = answer
  end
until left == 0 and at > #question

if lump and (total ~= stored_total or pulled) then
  newest = struct.pack(ENTRY, MARK, stored_total, 0, 0, stamp, stamp, horizon, units, stored_serial)
    .. struct.pack(MORE, 0, 0, 0, begun)
  call('DEL', key)
  call('ZADD', key, string.format('%.0f', stamp), newest)
  call('PEXPIRE', key, string.format('%.0f', (stamp - now + horizon + 2 * SLICE) / MILLISECOND))
elseif stale and total ~= stored_total then
  call('DEL', key)
end

if total ~= stored_total then
  local window = longest[2]

  -- What windows longer than this one still need.
  local keep_window, keep_units, keep_until = 0, 0, 0
  if newest then
    if long_window > window and now < long_until then
      keep_window, keep_units, keep_until = long_window, long_units, long_until
    end
    if horizon > window and now < stamp + horizon then
      if horizon > keep_window then keep_window = horizon end
      if units > keep_units then keep_units = units end
      if stamp + horizon > keep_until then keep_until = stamp + horizon end
    end
  end

  if since <= now - window then
    local bound = window / MILLISECOND
    if longest[1] < bound then bound = longest[1] end
    if keep_window > 0 then
      -- The first entry that somebody needs, by its rank; all before it go.
      local outside = call('ZCOUNT', key, '-inf', longest_edge)
      local low, high, last_total = 0, outside, floor
      while low < high do
        local middle = math.floor((low + high) / 2)
        local entry = call('ZRANGE', key, middle, middle)[1]
        local entry_total, entry_stamp, _ = total, now
        if #entry >= ENTRY_SIZE then
          _, entry_total, _, _, _, entry_stamp = struct.unpack(ENTRY, entry)
        end
        local newer = (total - entry_total) % MODULUS
        if newer >= keep_units or entry_stamp <= now - keep_window then
          low, last_total = middle + 1, entry_total
        else
          high = middle
        end
      end
      if low > 0 then
        local first = call('ZRANGE', key, low, low)[1]
        floor, since = last_total, now
        if first and #first >= ENTRY_SIZE and not (merges and first == newest) then
          local _
          _, _, _, _, _, since = struct.unpack(ENTRY, first)
        end
        call('ZREMRANGEBYRANK', key, 0, low - 1)
      end
    elseif (total - floor) % MODULUS > bound then
      call('ZREMRANGEBYSCORE', key, '-inf', longest_edge)
      floor, since = (total - longest[3]) % MODULUS, longest[4]
    end
  end

  local entry = struct.pack(ENTRY, MARK, total, base, floor, since, now, window, most, serial)
  local expiry = ARGV[2]
  if keep_window > 0 or begun > 0 then
    entry = entry .. struct.pack(MORE, keep_window, keep_units, keep_until, begun)
    local longer = (keep_until - now + 2 * SLICE) / MILLISECOND
    if longer > expiry + 0 then expiry = string.format('%.0f', longer) end
  end
  call('ZADD', key, now_text, entry)
  -- After the new one, so that the key, and with it the expiry, is there all the time.
  if merges then call('ZREMRANGEBYRANK', key, '-2', '-2') end
  if not newest or lump or window ~= horizon or stamp - stamp % SLICE ~= now - now % SLICE then
    call('PEXPIRE', key, expiry)
  end
end

return replies and table.concat(replies) or reply
