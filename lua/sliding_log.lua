-- The sliding log: decides whether takes fit into every quota of their keys, and charges those
-- that do.
--
-- KEYS     1 to 64 keys of one slot, each a log: a sorted set
-- ARGV[1]  the questions: see include/read_question.lua; of a quota they say max, and window
--          in microseconds
-- ARGV[2]  the call id, which the reply repeats
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see include/reply_format.lua. Refunds: see refund/sliding_log.lua.
--
-- A member of the set, an entry, holds all takes of a millisecond. Its score is the instant of the
-- last of them. It says a running total of units, its own included, and its base: that total before
-- it. So the units inside of a window are the newest total less the base of the oldest entry in the
-- window. An entry's fields: mark, total, base, base and stamp of the oldest entry of the set, its
-- own stamp, the window and the max that it was charged under, serial number: see
-- include/log_entry.lua.

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, concat, format, sub = math.floor, table.concat, string.format, string.sub

local clock = not ARGV[3] and call('TIME')
local now = clock and clock[1] * 1000000 + clock[2] or ARGV[3] + 0
local now_text = clock and clock[1] .. sub('00000' .. clock[2], -6) or ARGV[3]
local question, replies, is_left = ARGV[1], { pack('>I8I8', now, ARGV[2]) }, false
local kind, at = unpack('>BI2', question)
local rule_at, quotas, lease, expiry, slice, max, window, edge, this_slice, expiry_text, _

-- The usual case: one quota, no lease, takes of one cost, and a key whose newest entry is inside of
-- the window and was charged under a window of this length; or a new key. All else is left for the
-- general part: the conditions are those of `is_usual`.
for place = 1, kind == USUAL and #KEYS or 0 do
  local key, rule_from, rows, cost, takes, deadline = KEYS[place], nil, nil, nil, nil, nil
  rule_from, rows, cost, takes, deadline, at = unpack(RECORD, question, at)
  if rule_from ~= rule_at then
    quotas, _, _, lease, expiry, slice, max, window = unpack(LOG_RULE, question, rule_from)
    rule_at, edge, expiry_text, this_slice = rule_from, nil, nil, floor(now / slice)
  end

  local is_usual = quotas == 1 and lease == 0 and rows == 1 and now <= deadline
    and cost > 0 and cost <= max
  -- The newest entry describes the whole set. An error is no entry: only a key without one is new.
  local found = is_usual and pcall('ZRANGE', key, '-1', '-1')
  local newest = found and (found[1] or found.err)
  local mark, total, base, oldest_base, oldest_stamp, stamp, horizon, serial
  if newest and #newest == LOG_ENTRY_SIZE then
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, _, serial = unpack(LOG_ENTRY, newest)
  else
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, serial =
      not newest and LOG_MARK, 0, 0, 0, now, now, window, 0
  end
  -- A serial number of 2^52 or more says that units of older entries were given back.
  is_usual = is_usual and mark == LOG_MARK and horizon == window and stamp <= now and stamp + window > now
    and (total > oldest_base or not newest) and total < MODULUS - max and serial < MODULUS - max

  -- The oldest entry inside of the window.
  local first_base, first_stamp, has_left = oldest_base, oldest_stamp, oldest_stamp <= now - window
  if is_usual and has_left then
    edge = edge or format('%.0f', now - window)
    local first = call('ZRANGEBYSCORE', key, '(' .. edge, '+inf', 'LIMIT', '0', '1')[1]
    is_usual = first and #first >= LOG_ENTRY_SIZE
    if is_usual then mark, _, first_base, _, _, first_stamp = unpack(LOG_ENTRY, first) end
  end
  local used = total - first_base
  local allowed = cost * takes <= max - used and takes or floor((max - used) / cost)
  -- Every entry holds a unit. So if just one has to leave for the next take to fit, the oldest
  -- entry suffices.
  is_usual = is_usual and mark == LOG_MARK and used >= 0 and used <= max
    and (allowed == takes or used + allowed * cost + cost == max + 1)

  local answer = ''
  if is_usual and allowed > 0 then
    local charged = cost * allowed
    local merges = newest and floor(stamp / 1000) == floor(now / 1000)
    if not merges then base = total end
    if merges and oldest_stamp == stamp then oldest_stamp = now end
    if merges and first_stamp == stamp then first_stamp = now end
    total, serial, used = total + charged, serial + charged, used + charged
    -- Entries that have left the window are removed when more units are held than the window can
    -- have entries: it has at most max, and one in a millisecond.
    local is_full = has_left and total - oldest_base > math.min(max, window / 1000)
    if is_full then oldest_base, oldest_stamp = first_base, first_stamp end
    is_usual = 1 == pcall('ZADD', key, now_text,
      pack(LOG_ENTRY, LOG_MARK, total, base, oldest_base, oldest_stamp, now, window, max, serial))
    if is_usual then
      if merges then call('ZREMRANGEBYRANK', key, '-2', '-2') end
      if is_full then call('ZREMRANGEBYSCORE', key, '0', edge) end
      if not newest or floor(stamp / slice) ~= this_slice then
        -- The same for all keys of a rule: to format a number takes as long as a command.
        expiry_text = expiry_text or format('%.0f', expiry)
        is_usual = 1 == pcall('PEXPIRE', key, expiry_text)
        -- No key is left without an expiry.
        if not is_usual and not newest then call('DEL', key) end
      end
      answer = pack(ANSWER, ALLOWED, allowed, serial, max - used, window)
      stamp = now
    end
  end
  if is_usual and allowed < takes then
    answer = answer .. pack(ANSWER, DENIED, takes - allowed, first_stamp + window - now, max - used,
      stamp + window - now)
  end
  replies[place + 1] = is_usual and answer
  is_left = is_left or not is_usual
end
if kind == USUAL and not is_left then return concat(replies) end
-- Takes over several counts, each of one quota without a lease.
if kind == SEVERAL then
-- include: joint_sliding_log
-- include: joint_permits
-- include: joint
end

-- include: setup
-- include: refunded_ranges
-- include: log_entry

local tells_held = false

local function read_quota(from)
  local max, window, behind = unpack('>I7I7', question, from)
  -- The window that counts may be longer than that of the rule, which is `life`. And the stamp of
  -- the oldest entry inside of it.
  return { max = max, limit = max, window = window, life = window, oldest = 0 }, behind
end

-- include: reply_format

-- Whether the first charge is prepared; whether the newest entry takes in what is charged; whether
-- it was stamped in the future.
local is_prepared, merges, went_back
-- When something was charged last.
local last_charge
-- For commands: the edge of a window that entries have left.
local left_window, left_text

local function ends_at(quota) return last_charge + quota.window end

local own = quotas

local place = 0
while place < number_of_keys do
  place = place + 1
  key = KEYS[place]
-- include: read_question
  if number_of_quotas == 0 then
    local row = 1
-- include: read_row
-- include: holders
-- include: end_key
  elseif not replies[place + 1] then
    local has_charged = false
    is_prepared, merges, went_back = false, false, false

    local members = pcall('ZRANGE', key, '-1', '-1')
    local error_text = members.err or joint_last and joint_error
    newest = members[1]
-- include: read_log
-- include: longer
    last_charge = stamp
    -- Of the first of the longest windows: the quota, the running total before its oldest entry,
    -- and where it begins, if entries have left it.
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
      if refunded then used[n] = used[n] - units_from(refunded, first_base) end
      if quota.max > largest_max then largest_max = quota.max end
      if not longest or window >= longest.window then
        longest, longest_base, edge = quota, first_base, left
      end
    end
    -- Quotas that only count need their windows kept; where these begin is looked for when the set
    -- is full.
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
      while takes + unfitting > 0 and not error_text do
        local is_unfitting = takes == 0
        if is_unfitting then takes, unfitting = unfitting, 0 end
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
          if refunded and total + charged >= MODULUS then
            -- Its numbers are in order. What was given back counts again.
            refunded = nil
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

-- include: log_trim
      local entry = pack(LOG_ENTRY, LOG_MARK, total, base, oldest_base, oldest_stamp, now, window,
        largest_max, refunded and serial + LOG_WITH_REFUNDED or serial)
      if long_window > 0 or refundable_since > 0 or lease_life > 0 then
        entry = entry .. pack(LOG_MORE, long_window, long_units, long_until, refundable_since,
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
        if merged then call('ZADD', key, edge, merged) end
        if sets_expiry then
          -- The same for all keys of a rule: to format a number takes as long as a command.
          expiry_text = expiry_text or format('%.0f', expiry)
          local needed = long_until > 0 and ceil((long_until - now + 2 * SLICE) / MILLISECOND) or 0
          local expires = pcall('PEXPIRE', key, needed > expiry and needed or expiry_text)
          if type(expires) == 'table' then
            -- No key is left without an expiry.
            if not newest then call('DEL', key) end
            error_text = expires.err
          end
        end
      end
    end
-- include: end_key
  end
end

return concat(replies)
