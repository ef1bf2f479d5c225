-- Takes that are charged to counters, for `core`. No two quotas of a rule have the same window.
--
-- Besides what `counter_states` says, a state has
--   key
--   own          the counter of each of the rule's quotas; `known` itself if these are just those
-- and only where it is so
--   is_new       one of its own is new
--   counters     those that are written, if these are not just its own: its own come first
--   sets_expiry  the key gets a new expiry
-- and a counter is_mixed, if takes of before are not told apart any more. The algorithm gives
--   new_counter(quota)
--   serve(counter, quota): it goes on under this quota of its window
--   follow_clock_back(counter): what was charged in the future counts as charged now
--   charge_counter(counter, units)
--   ends_at(counter): when nothing of it counts any more

-- The counters of the rule's quotas, where something counts.
local function own_counters(state)
  local rule, known, own = state.rule, state.known, {}
  local is_as_before = #known == rule.number
  for n = 1, rule.number do is_as_before = is_as_before and known[n].quota == rule[n] end
  if is_as_before then return known end
  for n = 1, rule.number do
    local quota, counter = rule[n], nil
    -- Earlier versions kept several of one window: the first one was charged last under its own.
    for t = 1, #known do
      if not counter and known[t].quota.window == quota.window then counter = known[t] end
    end
    if not counter then
      counter, state.is_new = new_counter(quota), true
    end
    own[n] = counter
  end
  return own
end

local function load(key, rule, raw)
  local state = { key = key, rule = rule, serial = 0, stamp = now, has_units = false, known = false,
    own = false, is_changed = false }
  -- MGET answers nothing for a key of another type, and GET an error.
  raw = raw or pcall('GET', key)
  if type(raw) == 'table' then state.error, raw = raw.err, false end
  if raw then read_counters(state, raw) end
  if state.has_units then
    state.own = own_counters(state)
  else
    state.own, state.is_new = { new_counter(rule[1]) }, true
    for n = 2, rule.number do state.own[n] = new_counter(rule[n]) end
  end
  return state
end

-- Chooses the counters that are written, where others than the rule's may count: the rule's come
-- first. Of too many others those that end first are dropped.
local function choose_counters(state)
  local rule, counters, others, windows = state.rule, {}, {}, {}
  for n = 1, rule.number do
    counters[n], windows[rule[n].window] = state.own[n], true
  end
  state.counters = counters
  for t = 1, #state.known do
    local counter = state.known[t]
    local window = counter.quota.window
    if not windows[window] and counter.used > 0 then others[#others + 1] = counter end
    windows[window] = true
  end
  local room = MAX_COUNTERS - rule.number
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
  local rule, own, stamp, since = state.rule, state.own, state.stamp, max(state.since or 0, now)
  local went_back = stamp > now
  local sets_expiry = state.is_new or went_back
    or floor(stamp / rule.slice) ~= floor(now / rule.slice)
  for t = 1, state.known and #state.known or 0 do
    local counter = state.known[t]
    if went_back then
      follow_clock_back(counter)
      counter.needed_until = min(counter.needed_until, now + counter.quota.life)
      counter.refundable_since = max(counter.refundable_since, stamp + 1)
    end
    if counter.refundable_since > since then since = counter.refundable_since end
  end
  -- The serial numbers run from zero again, unless a take with such a number may have the same
  -- stamp: one of this very instant, or one from before the clock went back.
  if not state.has_units and since == now and stamp ~= now then state.serial = 0 end
  for n = 1, rule.number do
    local counter, quota = own[n], rule[n]
    -- One that was not charged at that instant, or counts for another time, may need a later
    -- expiry.
    sets_expiry = sets_expiry or counter.needed_until ~= stamp + quota.life
    if counter.quota ~= quota then
      serve(counter, quota)
      counter.quota = quota
    end
    counter.needed_until = now + quota.life
    if counter.refundable_since == 0 or counter.is_mixed then counter.refundable_since = since end
  end
  if own ~= state.known and state.has_units then choose_counters(state) end
  if sets_expiry then state.sets_expiry = true end
end

local function charge(state, units)
  local counters = state.counters or state.own
  for n = 1, state.rule.number do
    local counter = counters[n]
    charge_counter(counter, units)
    -- Units owed last longer than a full counter does.
    if counter.used > counter.quota.limit then state.sets_expiry = true end
  end
  state.stamp, state.serial = now, (state.serial + units) % MODULUS
end

-- Returns what went wrong, or nil.
local function write(state)
  local rule, counters = state.rule, state.counters or state.own
  local text = state_text(state, counters)
  if not state.sets_expiry then return pcall('SET', state.key, text, 'KEEPTTL').err end
  local expiry = rule.expiry
  for t = 1, #counters do
    local counter = counters[t]
    -- What is damaged may say that it never ends.
    local ends = min(max(counter.needed_until, ends_at(counter)), now + 2 * TEN_YEARS)
    local needed = ends - now + 2 * max(counter.quota.life / 16, SLICE)
    expiry = max(expiry, ceil(needed / MILLISECOND))
  end
  if expiry > rule.expiry then return pcall('SET', state.key, text, 'PX', expiry).err end
  -- The same for all keys of a rule: to format a number takes as long as a command.
  rule.expiry_text = rule.expiry_text or format('%.0f', expiry)
  return pcall('SET', state.key, text, 'PX', rule.expiry_text).err
end
