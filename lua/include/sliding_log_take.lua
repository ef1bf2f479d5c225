-- Takes that are charged to a log, for `core`.
--
-- Besides what `sliding_log` says, a state has
--   rule
--   own           of each quota: used, the units in its window; window; oldest and base:
--                 the stamp of the oldest entry in it, and the total before
--   last_charge   when something was charged last
--   merges        whether the newest entry takes in what this call charges
--   went_back     true if something was charged in the future, or nil

local counter_units
local edge_known, edge_text

-- For commands. To format a number takes as long as a command.
local function text_of(instant)
  if instant ~= edge_known then edge_known, edge_text = instant, format('%.0f', instant) end
  return edge_text
end

local function read_quota(from)
  local max, window, behind = unpack(LOG_QUOTA, question, from)
  return { max = max, limit = max, window = window }, behind
end

-- The oldest entry behind this instant.
local function first_behind(key, instant)
  return call('ZRANGEBYSCORE', key, '(' .. text_of(instant), '+inf', 'LIMIT', '0', '1')[1]
end

-- The units in the window of a quota, and where it begins.
local function counter_of(state, quota)
  local window = quota.window
  local base, oldest = state.oldest_base, state.oldest_stamp
  if oldest <= now - window then
    oldest, base = entry_of(first_behind(state.key, now - window))
    if not oldest then oldest, base = now, state.total end
  end
  return { used = units_behind(state, base), window = window, oldest = oldest, base = base,
    state = state }
end

local function load(key, rule)
  local state = { key = key, rule = rule, is_changed = false, own = { false }, newest = nil, total = 0,
    base = 0, oldest_base = 0, oldest_stamp = now, stamp = now, horizon = 0, largest = 0,
    serial = 0, last_charge = now, merges = false }
  local found = pcall('ZRANGE', key, '-1', '-1')
  if found.err then state.error = found.err end
  if found[1] then read_log(state, found[1]) end
  state.last_charge = state.stamp
  for n = 1, rule.quotas do state.own[n] = counter_of(state, rule[n]) end
  return state
end

-- Searches by rank, in halves: how many of the first `high` members are needless, which are those
-- stamped at `left` or before, those with at least `max_units` units behind them, and the member
-- that says what was given back. It also returns the stamp of the next entry, if it has read that.
local function count_needless(state, high, max_units, left)
  local low, next_stamp = refunded_of(state) and 1 or 0, nil
  while low < high do
    local middle = floor((low + high) / 2)
    local of, _, with = entry_of(call('ZRANGE', state.key, middle, middle)[1])
    if not of then of, with = now, state.total end
    if of <= left or units_behind(state, with) >= max_units then
      low = middle + 1
    else
      high, next_stamp = middle, of
    end
  end
  return low, next_stamp
end

-- Microseconds until a cost fits that does not fit now.
local function wait(counter, limit, cost)
  local state, leaves, _ = counter.state, counter.oldest, nil
  -- Every entry holds at least one unit, unless something was given back: if one unit has to leave,
  -- the oldest entry suffices.
  if counter.used + cost - limit > 1 or refunded_of(state) then
    -- What this call has charged is not in the set yet.
    local high = state.newest and call('ZCARD', state.key) or 0
    if state.merges then high = high - 1 end
    _, leaves = count_needless(state, high, limit - cost + 1, -1)
    leaves = leaves or now
    if state.went_back then leaves = min(leaves, now) end
  end
  return leaves + counter.window - now
end

-- When nothing of it counts any more.
local function ends_at(counter) return counter.state.last_charge + counter.window end

-- Makes a state ready for its first charge of a call.
local function prepare(state)
  local newest, stamp, own = state.newest, state.stamp, state.own
  if stamp > now then
    -- Charges in the future become a part of this one.
    local first = call('ZRANGEBYSCORE', state.key, now_text, '+inf', 'LIMIT', '0', '1')[1]
    local _, before = entry_of(first)
    local more = state.more or more_of()
    if more.refundable_since <= stamp then more.refundable_since = stamp + 1 end
    more.long_until = min(more.long_until, now + more.long_window)
    state.base, state.more, state.went_back = before or state.base, more, true
    state.oldest_stamp, stamp = min(state.oldest_stamp, now), now
    state.stamp = now
  end
  -- An entry without units, since all of them were given back, is replaced as well.
  local is_same_millisecond = floor(stamp / MILLISECOND) == floor(now / MILLISECOND)
  local merges = newest and (is_same_millisecond or state.total == state.oldest_base)
  if not merges then state.base = state.total end
  if not newest or merges and state.oldest_stamp == stamp then state.oldest_stamp = now end
  for n = 1, #own do
    local counter = own[n]
    if counter.used == 0 or merges and counter.oldest == stamp or counter.oldest > now then
      counter.oldest = now
    end
  end
  state.merges = merges
end

local function charge(state, units)
  local own = state.own
  if refunded_of(state) and state.total + units >= MODULUS then
    -- Its numbers are in order. What was given back counts again.
    state.more.refunded = nil
    call('ZREMRANGEBYSCORE', state.key, '-1', '-1')
  end
  for n = 1, #own do own[n].used = own[n].used + units end
  state.total, state.serial = (state.total + units) % MODULUS, (state.serial + units) % MODULUS
  state.last_charge = now
end

-- Notes what windows longer than this one still need.
local function note_more(state, window)
  local more, newest = state.more, state.newest
  local is_longer = newest and state.horizon > window and now < state.stamp + state.horizon
  if not more and not is_longer then return end
  more = more or more_of()
  state.more = more
  if more.long_window <= window or now >= more.long_until or not newest then
    more.long_window, more.long_units, more.long_until = 0, 0, 0
  end
  if is_longer then
    more.long_window = max(more.long_window, state.horizon)
    more.long_units = max(more.long_units, state.largest)
    more.long_until = max(more.long_until, state.stamp + state.horizon)
  end
end

-- The stamp and the base of the entries from this member on. They are those of the new entry if it
-- replaces the newest, or if no other entry is left.
local function beginning(state, first)
  local oldest, base = entry_of(first)
  if not oldest or oldest >= now or state.merges and first == state.newest then
    return now, state.base
  end
  return oldest, base
end

-- While a longer window of an earlier charge is in use: merges the entries that have left the
-- window of this charge, and have `long_units` behind them, into one, which counts as long as the
-- last of them. Returns the stamp up to which entries are removed, for commands, or nil, and the
-- entry that replaces them, or nil.
local function merge_oldest(state, window)
  local more, edge = state.more, nil
  local left = now - more.long_window
  local high = call('ZCOUNT', state.key, '-inf', text_of(now - window))
  if state.oldest_stamp <= left then
    state.oldest_stamp, state.oldest_base = beginning(state, first_behind(state.key, left))
    edge = text_of(left)
  end
  local needless = count_needless(state, high, more.long_units, left)
  local last = needless > 0 and call('ZRANGE', state.key, needless - 1, needless - 1)[1]
  local of, _, with = entry_of(last)
  if not of or of <= state.oldest_stamp or of >= now then return edge, nil end
  state.oldest_stamp, edge = of, format('%.0f', of)
  return edge, pack(LOG_ENTRY, LOG_MARK, with, state.oldest_base, state.oldest_base, of, of,
    state.horizon, state.largest, state.serial)
end

-- Finds where the entries begin that some window needs, if it is time to remove those before: where
-- more units are held than any quota counts; while longer windows of earlier charges need
-- something; or once the set has more units than the longest window can have entries: at most
-- `max_units`, and one in a millisecond. Returns the stamp up to which entries are removed, for
-- commands, or nil, and the entry that replaces them, or nil.
local function trim(state, window, max_units)
  local key, oldest, base = state.key, nil, nil
  local is_beyond = (state.total - state.oldest_base) % MODULUS > MAX_STORED
  if is_beyond then
    local needless = count_needless(state, call('ZCARD', key), MAX_STORED, -1)
    oldest, base = beginning(state, call('ZRANGE', key, needless, needless)[1])
  elseif state.oldest_stamp > now - window then
    return nil
  elseif state.more and state.more.long_window > 0 then
    return merge_oldest(state, window)
  elseif units_behind(state, state.oldest_base) <= min(max_units, window / MILLISECOND) then
    return nil
  end
  for n = 1, is_beyond and 0 or #state.own do
    local counter = state.own[n]
    if counter.window == window then oldest, base = counter.oldest, counter.base end
  end
  if not oldest then oldest, base = beginning(state, first_behind(key, now - window)) end
  if (state.total - base) % MODULUS > MAX_STORED then
    base, state.more = (state.total - MAX_STORED) % MODULUS, state.more or more_of()
    state.more.refundable_since = now + 1
  end
  state.oldest_stamp, state.oldest_base = oldest, base
  return is_beyond and '(' .. format('%.0f', oldest) or text_of(now - window)
end

-- Returns what went wrong, or nil.
local function write(state, key)
  local rule, newest, merges = state.rule, state.newest, state.merges
  local longest, largest, went_back = rule[1], 0, state.went_back
  for n = 1, rule.quotas do
    if rule[n].window > longest.window then longest = rule[n] end
    largest = max(largest, rule[n].max)
  end
  local window = longest.window
  local sets_expiry = not newest or window ~= state.horizon or went_back
    or floor(state.stamp / rule.slice) ~= rule.this_slice
  note_more(state, window)
  local edge, merged = trim(state, window, longest.max)
  local entry = entry_text(state, now, window, largest)
  -- First removes the entries that count no more, or are contained in the new one.
  local written
  if state.is_stale then
    written = pcall('DEL', key)
  elseif went_back then
    written = pcall('ZREMRANGEBYSCORE', key, now_text, '+inf')
  end
  if type(written) ~= 'table' then written = pcall('ZADD', key, now_text, entry) end
  if type(written) == 'table' then return written.err end
  if sets_expiry then
    -- The same for all keys of a rule: to format a number takes as long as a command.
    rule.expiry_text = rule.expiry_text or format('%.0f', rule.expiry)
    local long_until = state.more and state.more.long_until or 0
    local needed = long_until > 0 and ceil((long_until - now + 2 * SLICE) / MILLISECOND) or 0
    written = pcall('PEXPIRE', key, needed > rule.expiry and needed or rule.expiry_text)
    if type(written) == 'table' then
      -- Nothing is charged, and no key is left without an expiry. After a step of the clock the new
      -- entry alone holds what was charged in the future, and stays.
      if not went_back then call('ZREM', key, entry) end
      return written.err
    end
  end
  -- After the new one, so that the key, and with it the expiry, is there all the time.
  if merges and not went_back then
    -- Of two entries with one stamp, that with the smaller total comes first. The new one has it
    -- where the total begins anew.
    local _, _, with = entry_of(newest)
    local rank = state.stamp == now and state.total < with and '-1' or '-2'
    call('ZREMRANGEBYRANK', key, rank, rank)
  end
  if edge then call('ZREMRANGEBYSCORE', key, '0', edge) end
  if merged then call('ZADD', key, edge, merged) end
  return nil
end
