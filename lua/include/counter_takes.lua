-- Takes that are charged to counters, for `core`.
--
-- Besides what `counter_states` says, a state has
--   key
--   own          the counter of each of the rule's quotas; `known` itself if these are just those
-- and only where it is so
--   is_new       one of its own is new
--   counters     those that are charged and written, if these are others than its own
--   sets_expiry  the key gets a new expiry
-- and a counter owes, if this call charges units owed to it, or is_in_debt, if it held such. The
-- algorithm gives
--   new_counter(quota, units, stamp)
--   is_same(quota, other): whether a counter of the one can go on as one of the other
--   carried_over(counter, stamp, quota): units that a new counter of this other quota begins with
--   charge_counter(counter, units, stamp) -> units that it could not hold
--   ends_at(counter): when nothing of it counts any more

-- The counters of the rule's quotas, if something counts, or two quotas share a counter.
local function own_counters(state)
  local rule, known, stamp, own = state.rule, state.has_units and state.known or {}, state.stamp, {}
  local is_as_before = #known == rule.charged
  for n = 1, rule.charged do is_as_before = is_as_before and known[n].quota == rule[n] end
  if is_as_before and not rule.shares then return known end
  for n = 1, rule.charged do
    local quota, counter, most = rule[n], nil, 0
    for t = 1, #known do
      if is_same(known[t].quota, quota) then counter = known[t] end
    end
    for before = 1, n - 1 do
      if is_same(rule[before], quota) then counter = own[before] end
    end
    -- What counts under any other quota counts here, too.
    for t = 1, counter and 0 or #known do
      local units = known[t].needed_until > now and carried_over(known[t], stamp, quota) or 0
      -- A bucket that counts for all quotas, and is at least half full, may have flowed over.
      local bound = rule.has_bound and rule[rule.charged]
      if bound and bound.capacity and is_same(known[t].quota, bound)
        and units >= floor(bound.capacity / 2) then
        units = MAX_HELD
      end
      most = max(most, units)
    end
    if not counter then
      counter, state.is_new = new_counter(quota, most, stamp), true
      counter.used = used_now(counter, max(stamp, now))
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
  if state.has_units or rule.shares then
    state.own = own_counters(state)
  else
    state.own, state.is_new = { new_counter(rule[1], 0, now) }, true
    for n = 2, rule.charged do state.own[n] = new_counter(rule[n], 0, now) end
  end
  return state
end

-- The counters that are charged and written, where they may be others than the rule's: those, and
-- the 4 of earlier quotas that are needed longest; 2 if one of the rule's counts for all. No two
-- counters are equal in all that they are sorted by.
local function chosen_counters(state)
  local own, rule, counters, earlier, is_own = state.own, state.rule, {}, {}, {}
  for n = 1, rule.charged do
    if not is_own[own[n]] then counters[#counters + 1] = own[n] end
    is_own[own[n]] = true
  end
  for t = 1, state.has_units and #state.known or 0 do
    local counter = state.known[t]
    if not is_own[counter] and counter.used > 0 and counter.needed_until > now then
      earlier[#earlier + 1] = counter
    end
  end
  table.sort(earlier, function(a, b)
    if a.needed_until ~= b.needed_until then return a.needed_until > b.needed_until end
    a, b = a.quota, b.quota
    if a.window ~= b.window then return a.window > b.window end
    if a.max ~= b.max then return a.max > b.max end
    if a.variant ~= b.variant then return a.variant > b.variant end
    return (a.capacity or 0) > (b.capacity or 0)
  end)
  for e = 1, min(#earlier, rule.has_bound and MAX_EARLIER_BESIDE_BOUND or MAX_EARLIER) do
    counters[#counters + 1] = earlier[e]
  end
  return counters
end

-- Makes a state ready for its first charge of a call.
local function prepare(state, owes)
  local rule, own, stamp, since = state.rule, state.own, state.stamp, max(state.since or 0, now)
  local slice, went_back = rule.slice, stamp > now
  local this_slice = floor(now / slice)
  local sets_expiry = state.is_new or went_back or owes
  for t = 1, state.known and #state.known or 0 do
    local counter = state.known[t]
    if went_back then
      counter.needed_until = min(counter.needed_until, now + counter.quota.life)
      counter.refundable_since = max(counter.refundable_since, stamp + 1)
    end
    if counter.refundable_since > since then since = counter.refundable_since end
  end
  -- The serial numbers run from zero again, unless a take with such a number may have the same
  -- stamp: one of this very instant, or one from before the clock went back.
  if not state.has_units and since == now and stamp ~= now then state.serial = 0 end
  for n = 1, rule.charged do
    local quota, counter = rule[n], own[n]
    local charged_before = counter.needed_until - quota.life
    sets_expiry = sets_expiry or counter.quota.life ~= quota.life
      or floor(charged_before / slice) ~= this_slice
    counter.quota, counter.needed_until = quota, now + quota.life
    if owes and n <= rule.limiting then counter.owes = true end
    if counter.used > quota.limit then counter.is_in_debt = true end
    if counter.refundable_since == 0 then counter.refundable_since = since end
  end
  if own ~= state.known and (state.has_units or rule.shares) then
    state.counters = chosen_counters(state)
  end
  if sets_expiry then state.sets_expiry = true end
end

local function charge(state, units)
  local counters = state.counters or state.own
  for t = 1, #counters do
    local counter = counters[t]
    local lost = charge_counter(counter, units, state.stamp)
    if lost > 0 and counter.refundable_since <= now then counter.refundable_since = now + 1 end
    -- Units owed last longer than a full counter does.
    if counter.owes or counter.is_in_debt then counter.needed_until = max(counter.needed_until, ends_at(counter)) end
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
    local needed = counter.needed_until - now + 2 * max(counter.quota.life / 16, SLICE)
    expiry = max(expiry, ceil(needed / MILLISECOND))
  end
  if expiry > rule.expiry then return pcall('SET', state.key, text, 'PX', expiry).err end
  -- The same for all keys of a rule: to format a number takes as long as a command.
  rule.expiry_text = rule.expiry_text or format('%.0f', expiry)
  return pcall('SET', state.key, text, 'PX', rule.expiry_text).err
end
