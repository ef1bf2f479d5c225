-- The sliding log: decides whether takes fit into every quota of their keys, and charges those
-- that do.
--
-- KEYS     1 to 64 keys of one slot, each a log: a sorted set
-- ARGV[1]  the questions: see formats.md; of a quota they say max, and window
--          in microseconds
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see formats.md. Refunds: see refund/sliding_log.lua.
--
-- A member of the set, an entry, holds all takes of a millisecond. Its score is the instant of the
-- last of them. It says a running total of units, its own included, and its base: that total before
-- it. So the units inside of a window are the newest total less the base of the oldest entry in the
-- window. An entry's fields: mark, total, base, base and stamp of the oldest entry of the set, its
-- own stamp, the window and the max that it was charged under, serial number: see
-- include/sliding_log.lua.

-- include: take_begin
local sub, format = string.sub, string.format
local now_text = clock and clock[1] .. sub('00000' .. clock[2], -6) or given[2]

-- A lone take in its usual case: what the loop below does, for one take of one key under one quota.
-- All else is left for that loop.
if kind == LONE then
  local id, _, slice, max, window, _, cost, deadline, behind =
    unpack(LONE_QUESTION, question, LONE_AT)
  local key = keys[1]
  local is_usual = now <= deadline and cost > 0 and cost <= max
  local found = is_usual and pcall('ZRANGE', key, '-1', '-1')
  local newest = found and (found[1] or found.err)
  local mark, total, base, oldest_base, oldest_stamp, stamp, horizon, serial
  if newest and #newest == LOG_ENTRY_SIZE then
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, _, serial =
      unpack(LOG_ENTRY, newest)
  else
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, serial =
      not newest and LOG_MARK, 0, 0, 0, now, now, window, 0
  end
  is_usual = is_usual and mark == LOG_MARK and horizon == window and stamp <= now
    and stamp + window > now and (total > oldest_base or not newest) and total < MODULUS - max
    and serial < MODULUS - max
  local first_base, first_stamp, edge = oldest_base, oldest_stamp, nil
  if is_usual and oldest_stamp <= now - window then
    edge = format('%.0f', now - window)
    local first = call('ZRANGEBYSCORE', key, '(' .. edge, '+inf', 'LIMIT', '0', '1')[1]
    first_base, first_stamp = total, now
    if first and #first >= LOG_ENTRY_SIZE then
      mark, _, first_base, _, _, first_stamp = unpack(LOG_ENTRY, first)
    end
  end
  local used = total - first_base + cost
  is_usual = is_usual and mark == LOG_MARK and used >= cost and used <= max + 1
  if is_usual and used > max then
    local left, reset = max + cost - used, stamp + window - now
    return pack(LONE_REPLY, id, ANSWERS, now, DENIED, 1, first_stamp + window - now, left, reset)
  elseif is_usual then
    local merges = newest and stamp - stamp % 1000 == now - now % 1000
    local sets_expiry = not newest or stamp - stamp % slice ~= now - now % slice
    if not merges then base = total end
    if merges and oldest_stamp == stamp then oldest_stamp = now end
    if merges and first_stamp == stamp then first_stamp = now end
    total, serial = total + cost, serial + cost
    local is_full = edge and total - oldest_base > math.min(max, window / 1000)
    if is_full then oldest_base, oldest_stamp = first_base, first_stamp end
    local entry = pack(LOG_ENTRY, LOG_MARK, total, base, oldest_base, oldest_stamp, now, window,
      max, serial)
    is_usual = 1 == pcall('ZADD', key, now_text, entry)
    if is_usual and sets_expiry then
      is_usual = 1 == pcall('PEXPIRE', key, sub(question, behind))
      -- Nothing is charged, and no key is left without an expiry.
      if not is_usual then call('ZREM', key, entry) end
    end
    if is_usual then
      if merges then call('ZREMRANGEBYRANK', key, '-2', '-2') end
      if is_full then call('ZREMRANGEBYSCORE', key, '0', edge) end
      return pack(LONE_REPLY, id, ANSWERS, now, ALLOWED, 1, serial, max - used, window)
    end
  end
end

local values = false
-- The longest window, the largest max, and the max of the longest window.
local longest, largest, longest_max
-- Each of these has a value for each quota: its max and its window; the instant at which the window
-- begins, as a text, once a command needs it; the stamp of the oldest entry in the window; and the
-- units in the window.
local maxes, windows, edges, firsts, used = { 0 }, { 0 }, { false }, { 0 }, { 0 }

-- The usual case: takes of one cost, and a key whose newest entry is inside of the longest
-- window and was charged under one of this length; or a new key. All else is left for the core.
-- include: usual_begin
  local key = keys[place]
  if rule_from ~= rule_at then
    quotas, expiry, slice, behind = unpack(RULE_HEAD, question, rule_from)
    rule_at, expiry_text, this_slice, longest, largest = rule_from, nil, now - now % slice, 0, 0
    for n = 1, quotas < CALENDAR and quotas or 0 do
      local max, window
      max, window, behind = unpack(LOG_QUOTA, question, behind)
      if window > longest then longest, longest_max = window, max end
      if max > largest then largest = max end
      maxes[n], windows[n], edges[n] = max, window, false
    end
  end

  -- include: calendar_read
  local is_usual = rows == 1 and now <= deadline and cost > 0
  -- The newest entry describes the whole set. An error is no entry: only a key without one is new.
  local found = is_usual and pcall('ZRANGE', key, '-1', '-1')
  local newest = found and (found[1] or found.err)
  local mark, total, base, oldest_base, oldest_stamp, stamp, horizon, serial
  if newest and #newest == LOG_ENTRY_SIZE then
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, _, serial = unpack(LOG_ENTRY, newest)
  else
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, serial =
      not newest and LOG_MARK, 0, 0, 0, now, now, longest, 0
  end
  -- A serial number of 2^52 or more says that units of older entries were given back.
  is_usual = is_usual and mark == LOG_MARK and horizon == longest and stamp <= now and stamp + longest > now
    and (total > oldest_base or not newest) and total < MODULUS - largest and serial < MODULUS - largest

  -- The units in each window, and how many takes fit.
  local allowed, edge, longest_first, longest_base = fitting, nil, nil, nil
  for n = 1, is_usual and quotas or 0 do
    local max, window, first_base, first_stamp = maxes[n], windows[n], oldest_base, oldest_stamp
    if oldest_stamp <= now - window then
      edges[n] = edges[n] or format('%.0f', now - window)
      local first = call('ZRANGEBYSCORE', key, '(' .. edges[n], '+inf', 'LIMIT', '0', '1')[1]
      first_base, first_stamp = total, now
      if first and #first >= LOG_ENTRY_SIZE then
        mark, _, first_base, _, _, first_stamp = unpack(LOG_ENTRY, first)
      end
      if window == longest then longest_first, longest_base, edge = first_stamp, first_base, edges[n] end
    end
    local units = total - first_base
    is_usual = is_usual and mark == LOG_MARK and units >= 0 and units <= max and cost <= max
    if cost * allowed > max - units then allowed = floor((max - units) / cost) end
    firsts[n], used[n] = first_stamp, units
  end

  local charged, before = cost * allowed, stamp
  local merges = newest and stamp - stamp % 1000 == now - now % 1000
  if charged > 0 then stamp = now end
  -- What the answer says of each quota, after the charge.
  local first_left, first_reset, others, wait = nil, nil, '', 0
  for n = 1, is_usual and quotas or 0 do
    local window, first_stamp, units = windows[n], firsts[n], used[n] + charged
    if charged > 0 and (used[n] == 0 or merges and first_stamp == before) then first_stamp = now end
    if allowed < takes and units + cost > maxes[n] then
      -- Every entry holds a unit. So if just one has to leave for the next take to fit, the oldest
      -- entry suffices.
      if units + cost > maxes[n] + 1 then is_usual = false end
      wait = first_stamp + window - now > wait and first_stamp + window - now or wait
    end
    local left, reset = maxes[n] - units, units > 0 and stamp + window - now or 0
    if n == 1 then
      first_left, first_reset = left, reset
    else
      others = others .. pack(NEXT_QUOTA, left, reset)
    end
  end

  local answer = ''
  if is_usual and charged > 0 then
    if not merges then base = total end
    if merges and oldest_stamp == before then oldest_stamp = now end
    if merges and longest_first == before then longest_first = now end
    total, serial = total + charged, serial + charged
    -- Entries that have left the longest window are removed when more units are held than it can
    -- have entries: it has at most its max, and one in a millisecond.
    local is_full = longest_first and total - oldest_base > math.min(longest_max, longest / 1000)
    if is_full then oldest_base, oldest_stamp = longest_base, longest_first end
    local entry = pack(LOG_ENTRY, LOG_MARK, total, base, oldest_base, oldest_stamp, now, longest, largest, serial)
    is_usual = 1 == pcall('ZADD', key, now_text, entry)
    if is_usual and (not newest or before - before % slice ~= this_slice) then
      -- The same for all keys of a rule: to format a number takes as long as a command.
      expiry_text = expiry_text or format('%.0f', expiry)
      is_usual = 1 == pcall('PEXPIRE', key, expiry_text)
      -- Nothing is charged, and no key is left without an expiry.
      if not is_usual then call('ZREM', key, entry) end
    end
    if is_usual then
      if merges then call('ZREMRANGEBYRANK', key, '-2', '-2') end
      if is_full then call('ZREMRANGEBYSCORE', key, '0', edge) end
      answer = pack(ANSWER, ALLOWED, allowed, serial, first_left, first_reset) .. others
    end
  end
  if is_usual and allowed < takes then
    answer = answer .. pack(ANSWER, DENIED, takes - allowed, wait, first_left, first_reset) .. others
  end
  -- include: usual_end
-- include: core_begin
-- include: refunded_ranges
-- include: sliding_log
-- include: sliding_log_take
-- include: core
