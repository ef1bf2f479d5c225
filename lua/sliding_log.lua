-- The sliding log: whether takes fit into every quota of their keys; charges those that do.
--
-- KEYS     1 to 64 keys of one slot, each a log: a sorted set
-- ARGV[1]  the questions: see include/question.lua; of a quota they say max and window in
--          microseconds
-- ARGV[2]  the call's mark, a number below 2^48 that the reply repeats
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see include/reply.lua. Refunds: see include/refund.lua.
--
-- One member holds all takes of a millisecond. Its score is the instant of the last of them; the
-- member itself is a byte that no text begins with, and big-endian integers of 7 bytes, so that
-- members of one score are in the order of their totals:
--   total    running total of all costs, with this entry, modulo 2^52
--   base     the same before this entry: the sum inside a window is one subtraction
--   floor    the base of the oldest entry of the set
--   since    the score of the oldest entry of the set
--   stamp    this entry's score, so that nobody has to ask for it
--   horizon  the longest window of the quotas that it was charged under
--   units    the largest max of these
--   serial   units ever charged, modulo 2^52: tells takes of one instant apart
-- and only where longer windows of earlier charges still need something of the set, or the clock
-- went back:
--   long_window, long_units   entries inside of this window, of which so many newest units suffice
--   long_until                until when
--   begun                     takes that were charged before this are not given back
-- Entries that have left the longest window are removed only when the set is full. A set whose
-- newest member is anything else, or says what cannot be, is started afresh at the next charge.
--
-- Nothing is written unless something is charged. If the clock went back, what was charged in the
-- future counts; a charge then makes one entry of it, and its own.

-- include: call

-- For commands. To format a number is slower.
local now_text = ARGV[is_refund and 4 or 3] or clock[1] .. sub('00000' .. clock[2], -6)

local ENTRY, ENTRY_SIZE, MARK = '>BI7I7I7I7I7I7I7I7', 57, 247
local MORE, ENTRY_AND_MORE, ENTRY_AND_MORE_SIZE = '>I7I7I7I7', '>BI7I7I7I7I7I7I7I7I7I7I7I7', 85
local POURS = false

local function read_quota(from)
  local max, window, behind = unpack('<I7I7', ARGV[1], from)
  -- And the stamp of the oldest entry inside of the window.
  return { max = max, limit = max, window = window, life = window, oldest = 0 }, behind
end

-- include: reply

-- Whether keys are left for the loop at the end.
local is_left = is_refund
if not is_refund then
  -- The usual keys: of a rule with one quota, with a set that this quota left and nothing has left
  -- since, if any, and takes that are all allowed.
  for place = 1, #KEYS do
    key = KEYS[place]
-- include: question
    local is_usual = number_of_quotas == 1 and rows == 1 and cost > 0 and now <= deadline
    local max, window, charged = quotas[1].max, quotas[1].window, cost * takes
    local mark, total, base, oldest_base, since, stamp, horizon, units, serial = MARK, 0, 0, 0, now,
      -1, window, 0, 0
    if is_usual then
      local members = pcall('ZRANGE', key, '-1', '-1')
      local newest = members[1]
      if newest and #newest == ENTRY_SIZE then
        mark, total, base, oldest_base, since, stamp, horizon, units, serial = unpack(ENTRY, newest)
        -- A set in which nothing counts is not usual.
        is_usual = total ~= oldest_base
      else
        is_usual = not newest and not members.err
      end
    end
    local units_now = (total - oldest_base) % MODULUS + charged
    is_usual = is_usual and mark == MARK and total < MODULUS and horizon == window and stamp <= now
      and since > now - window and units_now <= max
    if is_usual then
      local merges = floor(stamp / MILLISECOND) == floor(now / MILLISECOND)
      if not merges then base = total end
      if merges and since == stamp then since = now end
      total, serial = (total + charged) % MODULUS, (serial + charged) % MODULUS
      local entry = pack(ENTRY, MARK, total, base, oldest_base, since, now, window, max, serial)
      is_usual = type(pcall('ZADD', key, now_text, entry)) == 'number'
      if is_usual then
        if merges then call('ZREMRANGEBYRANK', key, '-2', '-2') end
        if floor(stamp / slice) ~= floor(now / slice) then
          expiry_text = expiry_text or format('%.0f', expiry)
          call('PEXPIRE', key, expiry_text)
        end
        replies[place + 1] = pack(ANSWER, ALLOWED, takes, serial, max - units_now, window)
      end
    end
    if not is_usual then is_left, replies[place + 1], at = true, false, at + (rows - 1) * ROW_SIZE end
  end
end
if not is_left then return concat(replies) end

-- The newest entry, and its fields, of which `oldest_base` is the floor. They run on with what is
-- charged.
local newest, total, base, oldest_base, since, stamp, horizon, units, serial
local long_window, long_units, long_until, begun
-- Whether what is in the set counts for nothing; whether something was charged; whether the newest
-- entry takes that in, and was stamped in the future.
local is_stale, has_begun, merges, went_back
-- When something was charged last.
local last

-- An entry's stamp, and the running totals before and with it; nil of what is none.
local function entry_of(member)
  if not member or #member < ENTRY_SIZE then return nil end
  local _, with, before, _, _, of = unpack(ENTRY, member)
  return of, before, with
end

-- By rank: how many of the oldest entries have so many units behind them, or have left; the total
-- with the last of those, and the stamp of the next.
local function count_needless(high, units_behind, left)
  local low, with_last, next_stamp = 0, oldest_base, nil
  while low < high do
    local middle = floor((low + high) / 2)
    local of, _, with = entry_of(call('ZRANGE', key, middle, middle)[1])
    if not of then of, with = now, total end
    if (total - with) % MODULUS >= units_behind or of <= left then
      low, with_last = middle + 1, with
    else
      high, next_stamp = middle, of
    end
  end
  return low, with_last, next_stamp
end

-- When enough has left the window: the stamp of the last entry that has to.
local function wait(quota, max, wanted, used_units)
  local leaves = quota.oldest
  -- Every entry holds at least one unit, so one too many is gone with the oldest.
  if used_units + wanted - max > 1 then
    -- What this call has charged is not in the set yet.
    local members = newest and call('ZCARD', key) or 0
    if merges then members = members - 1 end
    local _, _, of = count_needless(members, max - wanted + 1, -1)
    leaves = of or now
    if went_back and leaves > now then leaves = now end
  end
  return leaves + quota.window - now
end

local function over_at(quota) return last + quota.window end

if is_refund then
-- include: refund
-- include: take_out
  newest = call('ZRANGE', key, '-1', '-1')[1]
-- include: log
  if not newest or stamp > now or receipt_stamp < begun then return 0 end
  life = math.max(horizon, long_window)
  local counting = horizon
  if now < long_until then
    counting = life
    -- Older entries may have been dropped for so many units that are newer.
    most = math.max(math.min(most, (total - oldest_base) % MODULUS - long_units), 0)
  end
  -- Everybody waits meanwhile: very many entries are not rewritten.
  local behind = call('ZCOUNT', key, stamp_text, '+inf')
  if behind == 0 or behind > 4096 then return 0 end
  local all, entries = call('ZCARD', key), {}
  local before = call('ZRANGEBYSCORE', key, stamp_text, '+inf')
  for n, member in ipairs(before) do
    entries[n] = { entry_of(member) }
    if not entries[n][1] then return 0 end
  end
  refunded = take_out(entries, most, MILLISECOND, counting, all == 1)
  if refunded > 0 then
    -- The last one says how the whole set is; it may be another one now.
    if not entries[1] then
      before[2] = call('ZRANGE', key, '-2', '-2')[1]
      entries[1] = { entry_of(before[2]) }
      if not entries[1][1] then return 0 end
      if all == 2 then since = entries[1][1] end
    elseif #entries < #before and all == #before then
      since = entries[1][1]
    end
    -- First the new ones, so that the key, and with it the expiry, is there all the time.
    local stays = {}
    for n, entry in ipairs(entries) do
      local member = pack(ENTRY, MARK, entry[3], entry[2], oldest_base, since, entry[1], horizon,
        units, serial)
      if n == #entries then member = member .. sub(newest, ENTRY_SIZE + 1) end
      call('ZADD', key, entry[1], member)
      stays[member] = true
    end
    for _, member in ipairs(before) do
      if not stays[member] then call('ZREM', key, member) end
    end
  end
-- include: refunded
end

local kept = quotas

at = 1
for place = 1, #KEYS do
  key = KEYS[place]
-- include: question
  if not replies[place + 1] then
    local has_charged = false
    has_begun, merges, went_back = false, false, false

    local members = pcall('ZRANGE', key, '-1', '-1')
    local trouble = members.err
    newest = members[1]
-- include: log
    last = stamp
    -- The first of the longest windows, and where it begins.
    local longest, edge
    for n = number_of_quotas, 1, -1 do
      local quota = quotas[n]
      local window, first_base, first_stamp, left = quota.window, oldest_base, since, nil
      if since <= now - window then
        left = format('%.0f', now - window)
        local first = call('ZRANGEBYSCORE', key, '(' .. left, '+inf', 'LIMIT', '0', '1')[1]
        first_stamp, first_base = entry_of(first)
        if not first_stamp then first_stamp, first_base = now, total end
      end
      used[n], quota.oldest = (total - first_base) % MODULUS, first_stamp
      if not longest or window >= longest.window then longest, edge = quota, left end
    end

    for row = 1, rows do
-- include: row
      while takes > 0 and not trouble do
-- include: decide
        if charged > 0 then
          if not has_begun then
            has_begun, went_back = true, stamp > now
            if went_back then
              -- What lies in the future becomes a part of this charge.
              local first = call('ZRANGEBYSCORE', key, now_text, '+inf', 'LIMIT', '0', '1')[1]
              local _, before = entry_of(first)
              base = before or base
              if begun <= stamp then begun = stamp + 1 end
              if long_until > now + long_window then long_until = now + long_window end
              if since > now then since = now end
              stamp = now
            end
            -- Also with an entry that holds nothing, since it was given back.
            local is_of_same = stamp - stamp % MILLISECOND == now - now % MILLISECOND
            merges = newest and (is_of_same or total == oldest_base)
            if not merges then base = total end
            if not newest or merges and since == stamp then since = now end
            for n = 1, number_of_quotas do
              local quota = quotas[n]
              if used[n] == 0 or merges and quota.oldest == stamp or quota.oldest > now then
                quota.oldest = now
              end
            end
            last = now
          end
          total, serial = (total + charged) % MODULUS, (serial + charged) % MODULUS
          number = serial
        end
-- include: answer
      end
    end

    if has_charged then
      local window, used_of_longest, max = longest.window, 0, 0
      for n = 1, number_of_quotas do
        if quotas[n].max > max then max = quotas[n].max end
        if quotas[n] == longest then used_of_longest = used[n] end
      end
      local expires = not newest or window ~= horizon or went_back
        or floor(stamp / slice) ~= floor(now / slice)

      -- What windows longer than this one still need.
      if long_window <= window or now >= long_until or not newest then
        long_window, long_units, long_until = 0, 0, 0
      end
      if newest and horizon > window and now < stamp + horizon then
        long_window, long_units = math.max(long_window, horizon), math.max(long_units, units)
        long_until = math.max(long_until, stamp + horizon)
      end

      -- Where the set is full, entries go that nobody needs.
      local needless = 0
      if since > now - window then
        edge = nil
      elseif long_window > 0 then
        local with_last
        local outside = call('ZCOUNT', key, '-inf', edge)
        needless, with_last = count_needless(outside, long_units, now - long_window)
        edge = nil
        if needless > 0 then
          local first = call('ZRANGE', key, needless, needless)[1]
          oldest_base, since = with_last, now
          if not merges or first ~= newest then since = entry_of(first) or now end
        end
      elseif (total - oldest_base) % MODULUS > math.min(longest.max, window / MILLISECOND) then
        oldest_base, since = (total - used_of_longest) % MODULUS, longest.oldest
      else
        edge = nil
      end

      local entry = pack(ENTRY, MARK, total, base, oldest_base, since, now, window, max, serial)
      if long_window > 0 or begun > 0 then
        entry = entry .. pack(MORE, long_window, long_units, long_until, begun)
      end
      -- What counts for nothing, or comes again in the new entry, goes first.
      local written
      if is_stale then
        written = pcall('DEL', key)
      elseif went_back then
        written = pcall('ZREMRANGEBYSCORE', key, now_text, '+inf')
      end
      trouble = type(written) == 'table' and written.err
      written = trouble or pcall('ZADD', key, now_text, entry)
      trouble = trouble or type(written) == 'table' and written.err
      if not trouble then
        -- After the new one, so that the key, and with it the expiry, is there all the time.
        if merges and not went_back then call('ZREMRANGEBYRANK', key, '-2', '-2') end
        if edge then call('ZREMRANGEBYSCORE', key, '-inf', edge) end
        if needless > 0 then call('ZREMRANGEBYRANK', key, '0', needless - 1) end
        if expires then
          local needed = math.ceil((long_until - now + 2 * SLICE) / MILLISECOND)
          -- The same for all keys of a rule: to format a number takes as long as a command.
          expiry_text = expiry_text or format('%.0f', expiry)
          call('PEXPIRE', key, needed > expiry and needed or expiry_text)
        end
      end
    end
-- include: key_end
  end
end

return concat(replies)
