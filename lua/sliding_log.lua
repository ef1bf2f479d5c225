-- The sliding log: decides whether takes fit into every quota of their keys, and charges those
-- that do.
--
-- KEYS     1 to 64 keys of one slot, each a log: a sorted set
-- ARGV[1]  the questions: see include/read_question.lua; of a quota they say max and window in
--          microseconds
-- ARGV[2]  the call id, which the reply repeats: a number below 2^32, or 2^32 more if a key stands
--          in KEYS more than once
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
-- include: given_back
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

-- Whether the first charge is prepared; whether the newest entry takes in what is charged; whether it
-- was stamped in the future.
local is_prepared, merges, went_back
-- When something was charged last.
local last_charge
-- For commands: the edge of a window that entries have left.
local left_window, left_text

local function ends_at(quota) return last_charge + quota.window end

local counters = quotas

for place = 1, #KEYS do
  key = KEYS[place]
-- include: read_question
  local has_charged = false
  is_prepared, merges, went_back = false, false, false

  local members = pcall('ZRANGE', key, '-1', '-1')
  local error_text = members.err
  newest = members[1]
-- include: read_log
-- include: longer
  last_charge = stamp
  -- Of the first of the longest windows: the quota, the running total before its oldest entry, and
  -- where it begins, if entries have left it.
  local longest, longest_base, edge
  local largest_max = 0
  for n = number_limiting, 1, -1 do
    local quota = quotas[n]
    local window, first_base, first_stamp = quota.life + longer_by, oldest_base, oldest_stamp
    local left
    if window > TEN_YEARS then window = TEN_YEARS end
    if oldest_stamp <= now - window then
      if window ~= left_window then
        left_window, left_text = window, format('%.0f', now - window)
      end
      left = left_text
      local first = call('ZRANGEBYSCORE', key, '(' .. left, '+inf', 'LIMIT', '0', '1')[1]
      first_stamp, first_base = entry_of(first)
      if not first_stamp then first_stamp, first_base = now, total end
    end
    used[n], quota.oldest, quota.window = (total - first_base) % MODULUS, first_stamp, window
    if given_back then used[n] = used[n] - units_from(given_back, first_base) end
    if quota.max > largest_max then largest_max = quota.max end
    if not longest or window >= longest.window then
      longest, longest_base, edge = quota, first_base, left
    end
  end
  -- Quotas that only count need their windows kept; where these begin is looked for when the set is
  -- full.
  for n = number_limiting + 1, number_of_quotas do
    local quota = quotas[n]
    local window = quota.life + longer_by
    if window > TEN_YEARS then window = TEN_YEARS end
    if quota.max > largest_max then largest_max = quota.max end
    if window > longest.window then
      quota.window = window
      longest, longest_base = quota, nil
    end
  end

  for row = 1, rows do
-- include: read_row
    while takes > 0 and not error_text do
-- include: decide
      if verdict == DENIED then
-- include: log_wait
      end
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
          for n = 1, number_limiting do
            local quota = quotas[n]
            if used[n] == 0 or merges and quota.oldest == stamp or quota.oldest > now then
              quota.oldest = now
            end
          end
          last_charge = now
        end
        if given_back and total + charged >= MODULUS then
          -- Its numbers are in order. What was given back counts again.
          given_back = nil
          call('ZREMRANGEBYSCORE', key, '-1', '-1')
        end
        total, serial = (total + charged) % MODULUS, (serial + charged) % MODULUS
        number = serial
      end
-- include: answer
    end
  end

  if has_charged then
    local window = longest.window
    local life = window
-- include: mark_lease
    local sets_expiry = not newest or window ~= horizon or went_back
      or stamp - stamp % slice ~= now - now % slice

    -- What windows longer than this one still need.
    local is_over = long_window <= window or now >= long_until or not newest
    if is_over and long_window + long_until > 0 then
      long_window, long_units, long_until = 0, 0, 0
    end
    if newest and horizon > window and now < stamp + horizon then
      long_window, long_units = math.max(long_window, horizon), math.max(long_units, units)
      long_until = math.max(long_until, stamp + horizon)
    end

    -- If the set is full, entries go that no window needs.
    local expelled, first = 0, given_back and 1 or 0
    local held = (total - oldest_base) % MODULUS
    if given_back then held = held - units_from(given_back, oldest_base) end
    local is_full = false
    if oldest_stamp > now - window then
      edge = nil
    else
      if not longest_base then edge = format('%.0f', now - window) end
      is_full = long_window == 0 and held > math.min(longest.max, window / MILLISECOND)
    end
    if edge and long_window > 0 then
      local high, units_behind = call('ZCOUNT', key, '-inf', edge), long_units
      local left = now - long_window
-- include: log_search
      edge, expelled = nil, needless
      if needless > first then
        local next_entry = call('ZRANGE', key, needless, needless)[1]
        oldest_base, oldest_stamp = base_behind, now
        if not merges or next_entry ~= newest then oldest_stamp = entry_of(next_entry) or now end
      end
    elseif is_full then
      if not longest_base then
        local oldest = call('ZRANGEBYSCORE', key, '(' .. edge, '+inf', 'LIMIT', '0', '1')[1]
        longest.oldest, longest_base = entry_of(oldest)
        local is_new = not longest_base or longest.oldest >= now or merges and oldest == newest
        if is_new then longest.oldest, longest_base = now, base end
      end
      oldest_base, oldest_stamp = longest_base, longest.oldest
    else
      edge = nil
    end

    local entry = pack(ENTRY, LOG_MARK, total, base, oldest_base, oldest_stamp, now, window,
      largest_max, given_back and serial + WITH_GIVEN_BACK or serial)
    if long_window > 0 or refundable_since > 0 or lease_life > 0 then
      entry = entry .. pack(MORE, long_window, long_units, long_until, refundable_since,
        marked_lease, lease_stamp, lease_life)
    end
    -- What counts for nothing, or comes again in the new entry, goes first.
    local written
    if is_stale or went_back then
      written = is_stale and pcall('DEL', key) or pcall('ZREMRANGEBYSCORE', key, now_text, '+inf')
      if type(written) == 'number' then written = nil end
    end
    written = written or pcall('ZADD', key, now_text, entry)
    -- A number, or a table with the error.
    error_text = written ~= 1 and written ~= 0 and written.err
    if not error_text then
      -- After the new one, so that the key, and with it the expiry, is there all the time.
      if merges and not went_back then call('ZREMRANGEBYRANK', key, '-2', '-2') end
      if edge then call('ZREMRANGEBYSCORE', key, '0', edge) end
      if expelled > first then call('ZREMRANGEBYRANK', key, first, expelled - 1) end
      if sets_expiry then
        -- The same for all keys of a rule: to format a number takes as long as a command.
        expiry_text = expiry_text or format('%.0f', expiry)
        local needed = long_until > 0 and ceil((long_until - now + 2 * SLICE) / MILLISECOND) or 0
        call('PEXPIRE', key, needed > expiry and needed or expiry_text)
      end
    end
  end
-- include: end_key
end

return concat(replies)
