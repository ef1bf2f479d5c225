-- Takes that are charged to counters, for `core`. No two quotas of a rule have the same window.
--
-- Besides what `counters` says, a state has
--   own          the counter of each of the rule's quotas
--   sets_expiry  whether the key gets a new expiry
--   counters     the counters that are written, its own first; nil where these are its own alone
-- The algorithm gives
--   new_counter(quota)
--   serve(counter, quota): it goes on under this quota of its window; its refundable_since is 0
--                     if takes of before are not told apart any more
--   follow_clock_back(counter): what was charged in the future counts as charged now
--   charge_counter(counter, units)
--   ends_at(counter): when nothing of it counts any more

local function load(key, rule, raw)
  local state = { rule = rule, serial = 0, stamp = now, since = 0, known = false, own = false,
    is_changed = false, sets_expiry = false }
  -- MGET answers nothing for a key of another type, and GET an error.
  raw = raw or pcall('GET', key)
  if type(raw) == 'table' then state.error, raw = raw.err, false end
  if raw then read_counters(state, raw) end
  if state.own then return state end
  local known, own = state.known, { false }
  for n = 1, rule.quotas do
    local quota, counter = rule[n], nil
    for t = 1, known and #known or 0 do
      if known[t].quota.window == quota.window then counter = known[t] end
    end
    own[n] = counter or new_counter(quota)
  end
  state.own = own
  return state
end

-- Chooses the counters that are written, where others than the rule's may count: the rule's come
-- first. Of too many others those that end first are dropped.
local function choose_counters(state)
  local rule, counters, others, windows = state.rule, {}, {}, {}
  for n = 1, rule.quotas do
    counters[n], windows[rule[n].window] = state.own[n], true
  end
  state.counters = counters
  for t = 1, #state.known do
    local counter = state.known[t]
    if not windows[counter.quota.window] and counter.used > 0 then others[#others + 1] = counter end
  end
  local room = MAX_COUNTERS - rule.quotas
  if #others > room then
    table.sort(others, function(a, b)
      local a_ends, b_ends = ends_at(a), ends_at(b)
      if a_ends ~= b_ends then return a_ends > b_ends end
      return a.quota.window > b.quota.window
    end)
  end
  for n = 1, min(#others, room) do counters[#counters + 1] = others[n] end
end

-- Makes a state ready for its first charge of a call.
local function prepare(state)
  local rule, own, known = state.rule, state.own, state.known
  local stamp, since = state.stamp, state.since
  local sets_expiry = floor(stamp / rule.slice) ~= rule.this_slice
  if stamp > now then
    since, sets_expiry = max(since, stamp + 1), true
    for t = 1, known and #known or 0 do
      local counter = known[t]
      follow_clock_back(counter)
      counter.needed_until = min(counter.needed_until, now + counter.quota.life)
      counter.refundable_since = max(counter.refundable_since, stamp + 1)
    end
  end
  -- The serial numbers run from zero again, unless a take with such a number may have the same
  -- stamp: one of this very instant, or one from before the clock went back.
  if not known and since <= now and stamp ~= now then state.serial = 0 end
  for n = 1, rule.quotas do
    local counter, quota = own[n], rule[n]
    -- A counter that is new, was not charged at that instant, or counts for another time may need a
    -- later expiry.
    sets_expiry = sets_expiry or counter.needed_until ~= stamp + quota.life
    if counter.quota ~= quota then
      serve(counter, quota)
      counter.quota = quota
    end
    counter.needed_until = now + quota.life
    if counter.refundable_since == 0 then counter.refundable_since = max(since, now) end
  end
  if known and own ~= known then choose_counters(state) end
  if sets_expiry then state.sets_expiry = true end
end

local function charge(state, units)
  local own = state.own
  for n = 1, state.rule.quotas do charge_counter(own[n], units) end
  state.stamp, state.serial = now, (state.serial + units) % MODULUS
end

-- Returns what went wrong, or nil.
local function write(state, key)
  local rule, counters = state.rule, state.counters or state.own
  local text = state_text(state, counters)
  if not state.sets_expiry then return pcall('SET', key, text, 'KEEPTTL').err end
  local expiry = rule.expiry
  for t = 1, #counters do
    local counter = counters[t]
    -- A damaged state may have an end that never comes.
    local ends = min(max(counter.needed_until, ends_at(counter)), now + 2 * TEN_YEARS)
    local needed = ends - now + 2 * max(counter.quota.life / 16, SLICE)
    expiry = max(expiry, ceil(needed / MILLISECOND))
  end
  if expiry > rule.expiry then return pcall('SET', key, text, 'PX', expiry).err end
  -- The same for all keys of a rule: to format a number takes as long as a command.
  rule.expiry_text = rule.expiry_text or format('%.0f', expiry)
  return pcall('SET', key, text, 'PX', rule.expiry_text).err
end
