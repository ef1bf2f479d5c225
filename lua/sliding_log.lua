-- The sliding log: decides whether takes fit into every quota of their keys, and charges those
-- that do.
--
-- KEYS     1 to 64 keys of one slot, each a log: a sorted set
-- ARGV[1]  the questions: see include/read_question.lua; of a quota they say max and window in
--          microseconds
-- ARGV[2]  the call id, a number below 2^32 that the reply repeats
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see include/reply_format.lua. Refunds: see refund/sliding_log.lua.
--
-- What an entry is: see include/log_entry.lua. Entries that have left the longest window are removed
-- only when the set is full. A set whose newest member is anything else, or says what cannot be, is
-- started afresh at the next charge.
--
-- Nothing is written unless something is charged. If the clock went back, what was charged in the
-- future counts; a charge then makes one entry of it, and its own.

-- include: setup
-- include: log_entry

-- For commands. To format a number is slower.
local now_text = ARGV[3] or clock[1] .. sub('00000' .. clock[2], -6)

local TELLS_HELD = false

local function read_quota(from)
  local max, window, behind = unpack('<I7I7', ARGV[1], from)
  -- The window that counts may be longer than that of the rule, which is `life`. And the stamp of
  -- the oldest entry inside of it.
  return { max = max, limit = max, window = window, life = window, oldest = 0 }, behind
end

-- include: reply_format

-- Whether keys are left for the loop at the end.
local keys_left = false
do
  -- Answers the usual keys: the rule has one quota, the set, if any, was charged under this quota
  -- and lease alone and is not full, and the takes are all allowed. All other keys are left for the
  -- loop at the end.
  local edge_window, edge
  for place = 1, #KEYS do
    key = KEYS[place]
-- include: read_question
    local is_usual = number_of_quotas == 1 and rows == 1 and cost > 0 and now <= deadline
    local max, window, charged = quotas[1].max, quotas[1].life + lease, cost * takes
    local usual_size = lease > 0 and ENTRY_AND_MORE_SIZE or ENTRY_SIZE
    local mark, replaces = LOG_MARK, false
    total, base, oldest_base, oldest_stamp, stamp, horizon, units, serial =
      0, 0, 0, now, -1, window, 0, 0
    if is_usual then
      local members = pcall('ZRANGE', key, '-1', '-1')
      newest = members[1]
      if newest and #newest == usual_size then
        mark, total, base, oldest_base, oldest_stamp, stamp, horizon, units, serial =
          unpack(ENTRY, newest)
        replaces = mark == LOG_MARK and total < MODULUS and horizon <= TEN_YEARS
          and now >= stamp + horizon
        if replaces then
          -- Nothing of it counts any more: as if there were no set.
          total, base, oldest_base, serial = 0, 0, 0, 0
          oldest_stamp, stamp, horizon = now, -1, window
        else
          -- A set of which all was given back is not usual.
          is_usual = total ~= oldest_base
        end
        if lease > 0 then
          local longer, _, _, since, marked, _, life = unpack(MORE, newest, ENTRY_SIZE + 1)
          -- A key that was charged under this lease alone.
          is_usual = is_usual and longer + since == 0 and marked == lease and life == window
        end
      else
        is_usual = not newest and not members.err
      end
    end
    is_usual = is_usual and mark == LOG_MARK and total < MODULUS and horizon == window and stamp <= now
    local first_base = oldest_base
    if is_usual and oldest_stamp <= now - window then
      -- Some entries have left the window: they go when the set is full.
      is_usual = (total - oldest_base) % MODULUS + charged <= math.min(max, window / MILLISECOND)
      if window ~= edge_window then
        edge_window, edge = window, '(' .. format('%.0f', now - window)
      end
      local first = is_usual and call('ZRANGEBYSCORE', key, edge, '+inf', 'LIMIT', '0', '1')[1]
      is_usual = first and #first >= ENTRY_SIZE
      if is_usual then
        local _
        _, _, first_base = unpack(ENTRY, first)
      end
    end
    local units_now = (total - first_base) % MODULUS + charged
    is_usual = is_usual and units_now <= max
    if is_usual then
      local merges = floor(stamp / MILLISECOND) == floor(now / MILLISECOND)
      if not merges then base = total end
      if merges and oldest_stamp == stamp then oldest_stamp = now end
      total, serial = (total + charged) % MODULUS, (serial + charged) % MODULUS
      local entry = pack(ENTRY, LOG_MARK, total, base, oldest_base, oldest_stamp, now, window, max,
        serial)
      if lease > 0 then entry = entry .. pack(MORE, 0, 0, 0, 0, lease, now, window) end
      is_usual = type(pcall('ZADD', key, now_text, entry)) == 'number'
      if is_usual then
        if merges then
          call('ZREMRANGEBYRANK', key, '-2', '-2')
        elseif replaces then
          call('ZREMRANGEBYRANK', key, '0', '-2')
        end
        if floor(stamp / slice) ~= floor(now / slice) then
          expiry_text = expiry_text or format('%.0f', expiry)
          call('PEXPIRE', key, expiry_text)
        end
        replies[place + 1] = pack(ANSWER, ALLOWED, takes, serial, max - units_now, window)
      end
    end
    if not is_usual then
      keys_left, replies[place + 1], at = true, false, at + (rows - 1) * ROW_SIZE
    end
  end
end
if not keys_left then return concat(replies) end

-- Whether the first charge is prepared; whether the newest entry
-- takes in what is charged; whether it was stamped in the future.
local is_prepared, merges, went_back
-- When something was charged last.
local last_charge

-- How many of the oldest entries have at least `units_behind` units behind them, or are stamped at
-- `left` or before; the running total with the last of these, and the stamp of the next entry. It
-- searches by rank below `high`.
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

-- The wait until enough entries have left the window. `leaves` is the stamp of the last of them.
local function wait(quota, max, wanted, used_units)
  local leaves = quota.oldest
  -- Every entry holds at least one unit: if one unit has to leave, the oldest entry suffices.
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

local function ends_at(quota) return last_charge + quota.window end

local counters = quotas

at = 1
for place = 1, #KEYS do
  key = KEYS[place]
-- include: read_question
  if not replies[place + 1] then
    local has_charged = false
    is_prepared, merges, went_back = false, false, false

    local members = pcall('ZRANGE', key, '-1', '-1')
    local error_text = members.err
    newest = members[1]
-- include: read_log
-- include: longer
    last_charge = stamp
    -- The first of the longest windows, and where it begins.
    local longest, edge
    for n = number_of_quotas, 1, -1 do
      local quota = quotas[n]
      local window = math.min(quota.life + longer_by, TEN_YEARS)
      local first_base, first_stamp, left = oldest_base, oldest_stamp, nil
      quota.window = window
      if oldest_stamp <= now - window then
        left = format('%.0f', now - window)
        local first = call('ZRANGEBYSCORE', key, '(' .. left, '+inf', 'LIMIT', '0', '1')[1]
        first_stamp, first_base = entry_of(first)
        if not first_stamp then first_stamp, first_base = now, total end
      end
      used[n], quota.oldest = (total - first_base) % MODULUS, first_stamp
      if not longest or window >= longest.window then longest, edge = quota, left end
    end

    for row = 1, rows do
-- include: read_row
      while takes > 0 and not error_text do
-- include: decide
        if charged > 0 then
          if not is_prepared then
            is_prepared, went_back = true, stamp > now
            if went_back then
              -- What lies in the future becomes a part of this charge.
              local first = call('ZRANGEBYSCORE', key, now_text, '+inf', 'LIMIT', '0', '1')[1]
              local _, before = entry_of(first)
              base = before or base
              if refundable_since <= stamp then refundable_since = stamp + 1 end
              if long_until > now + long_window then long_until = now + long_window end
              if oldest_stamp > now then oldest_stamp = now end
              stamp = now
            end
            -- An entry that holds nothing, since all of it was given back, is replaced as well.
            local is_same_millisecond = stamp - stamp % MILLISECOND == now - now % MILLISECOND
            merges = newest and (is_same_millisecond or total == oldest_base)
            if not merges then base = total end
            if not newest or merges and oldest_stamp == stamp then oldest_stamp = now end
            for n = 1, number_of_quotas do
              local quota = quotas[n]
              if used[n] == 0 or merges and quota.oldest == stamp or quota.oldest > now then
                quota.oldest = now
              end
            end
            last_charge = now
          end
          total, serial = (total + charged) % MODULUS, (serial + charged) % MODULUS
          number = serial
        end
-- include: answer
      end
    end

    if has_charged then
      local window, used_of_longest, max = longest.window, 0, 0
      local life = window
-- include: mark_lease
      for n = 1, number_of_quotas do
        if quotas[n].max > max then max = quotas[n].max end
        if quotas[n] == longest then used_of_longest = used[n] end
      end
      local sets_expiry = not newest or window ~= horizon or went_back
        or floor(stamp / slice) ~= floor(now / slice)

      -- What windows longer than this one still need.
      if long_window <= window or now >= long_until or not newest then
        long_window, long_units, long_until = 0, 0, 0
      end
      if newest and horizon > window and now < stamp + horizon then
        long_window, long_units = math.max(long_window, horizon), math.max(long_units, units)
        long_until = math.max(long_until, stamp + horizon)
      end

      -- If the set is full, entries go that no window needs.
      local needless = 0
      if oldest_stamp > now - window then
        edge = nil
      elseif long_window > 0 then
        local with_last
        local outside = call('ZCOUNT', key, '-inf', edge)
        needless, with_last = count_needless(outside, long_units, now - long_window)
        edge = nil
        if needless > 0 then
          local first = call('ZRANGE', key, needless, needless)[1]
          oldest_base, oldest_stamp = with_last, now
          if not merges or first ~= newest then oldest_stamp = entry_of(first) or now end
        end
      elseif (total - oldest_base) % MODULUS > math.min(longest.max, window / MILLISECOND) then
        oldest_base, oldest_stamp = (total - used_of_longest) % MODULUS, longest.oldest
      else
        edge = nil
      end

      local entry = pack(ENTRY, LOG_MARK, total, base, oldest_base, oldest_stamp, now, window, max,
        serial)
      if long_window > 0 or refundable_since > 0 or lease_life > 0 then
        entry = entry .. pack(MORE, long_window, long_units, long_until, refundable_since,
          marked_lease, lease_stamp, lease_life)
      end
      -- What counts for nothing, or comes again in the new entry, goes first.
      local written
      if is_stale then
        written = pcall('DEL', key)
      elseif went_back then
        written = pcall('ZREMRANGEBYSCORE', key, now_text, '+inf')
      end
      error_text = type(written) == 'table' and written.err
      written = error_text or pcall('ZADD', key, now_text, entry)
      error_text = error_text or type(written) == 'table' and written.err
      if not error_text then
        -- After the new one, so that the key, and with it the expiry, is there all the time.
        if merges and not went_back then call('ZREMRANGEBYRANK', key, '-2', '-2') end
        if edge then call('ZREMRANGEBYSCORE', key, '-inf', edge) end
        if needless > 0 then call('ZREMRANGEBYRANK', key, '0', needless - 1) end
        if sets_expiry then
          local needed = math.ceil((long_until - now + 2 * SLICE) / MILLISECOND)
          -- The same for all keys of a rule: to format a number takes as long as a command.
          expiry_text = expiry_text or format('%.0f', expiry)
          call('PEXPIRE', key, needed > expiry and needed or expiry_text)
        end
      end
    end
-- include: end_key
  end
end

return concat(replies)
