-- States of algorithms that keep a counter for each window, for takes and for refunds.
--
-- A state is a string: the mark of its algorithm, and then, as big-endian integers of 7 bytes,
--   serial       units ever charged, modulo 2^52: tells takes of one instant apart
--   stamp        when something was charged last
-- and the counters: those of the quotas that were charged last, and those of other windows in which
-- something counts. A charge goes to those of its own quotas alone. A value that is no such string,
-- or damaged, is as good as none. Nothing is written unless something is charged. If the clock went
-- back, what was charged in the future counts; a charge then pulls it back to now.
--
-- Once loaded, a state has
--   rule, serial, stamp
--   since        takes from before this are not told apart in a new counter
--   known        the counters that stood in it; false if nothing in them counts
--   own          `known`, if these are just those of the rule's quotas; else what it was
--
-- A counter has
--   quota, used
--   needed_until      its last charge and as long as a full counter counts
--   refundable_since  takes from before this are not given back: they are not told apart in it, or
--                     have drained
-- and what its algorithm adds. The algorithm gives
--   own_mark          the byte that a state begins with
--   own_state, own_counter
--                     the formats of a state with its first counter, and of another counter
--   read_counter(raw, at, stamp, quota) -> counter, at     nil if it is damaged
--   numbers_of(counter, stamp) -> what the format says of it, but for `entries`, a text that
--                     stands behind it; `stamp` is the instant of the last charge
--   used_now(counter, latest): units that count now; `latest` is now, or the last charge if that
--                     is later

-- Reads the counters into a state. Those of `raw` are expected to be the rule's, in their order.
local function read_counters(state, raw)
  if #raw <= HEADER_SIZE then
    if #raw == RESET_SIZE and byte(raw) == RESET_MARK then state.since = unpack('>I7', raw, 2) end
    return
  end
  local mark, serial, stamp, at = unpack(HEADER, raw)
  if mark ~= own_mark then return end
  local rule, latest, known, size = state.rule, stamp > now and stamp or now, nil, 0
  local has_units, is_own, since = false, true, 0
  repeat
    size = size + 1
    local quota, counter = rule[size], nil
    counter, at = read_counter(raw, at, stamp, quota)
    local life = counter and counter.quota.life or 0
    if life <= 0 or life > TEN_YEARS or counter.needed_until > stamp + 2 * TEN_YEARS then return end
    local used = used_now(counter, latest)
    if used > 0 then has_units = true end
    if counter.quota ~= quota then is_own = false end
    if counter.refundable_since > since then since = counter.refundable_since end
    counter.used = used
    if known then known[size] = counter else known = { counter } end
  until at > #raw
  state.serial, state.stamp, state.since = serial, stamp, since
  if has_units then state.known = known end
  if has_units and is_own and size == rule.quotas then state.own = known end
end

-- What stands under a key.
local function state_text(state, counters)
  local stamp, first = state.stamp, counters[1]
  local text = pack(own_state, own_mark, state.serial, stamp, numbers_of(first, stamp))
  if first.entries then text = text .. first.entries end
  for t = 2, #counters do
    local counter = counters[t]
    text = text .. pack(own_counter, numbers_of(counter, stamp)) .. (counter.entries or '')
  end
  return text
end
