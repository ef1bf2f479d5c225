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
--   known        the counters that stood in it; false if there were none
--   has_units    whether something in them counts
-- and only where it is so
--   since        since when new counters give takes back, after a reset
--
-- A counter has
--   quota, used
--   needed_until      its last charge and as long as a full counter counts; earlier versions read
--                     until when it is needed
--   refundable_since  takes from before this are not told apart in it, and not given back
-- and what its algorithm adds. The algorithm gives
--   own_mark, leased_mark
--                     what a state begins with; the second, of earlier versions, may be nil
--   read_counter(raw, at, stamp, quota) -> counter, at     nil if it is damaged
--   write_counter(counter, stamp) -> text     `stamp` is the instant of the last charge
--   used_now(counter, latest): units that count now; `latest` is now, or the last charge if that
--                     is later

-- Reads the counters into a state. Those of `raw` are expected to be the rule's, in their order.
local function read_counters(state, raw)
  local rule, first_byte = state.rule, byte(raw)
  if first_byte == RESET_MARK and #raw == RESET_SIZE then
    local _, since = unpack(RESET, raw)
    state.since = since
  elseif (first_byte == own_mark or first_byte == leased_mark) and #raw > HEADER_SIZE then
    local _, serial, stamp, at = unpack(HEADER, raw)
    if first_byte == leased_mark then at = at + LEASE_SIZE end
    local latest, has_units, known, size = max(stamp, now), false, nil, 0
    repeat
      local counter
      counter, at = read_counter(raw, at, stamp, rule[size + 1])
      local life = counter and counter.quota.life or 0
      local is_valid = life > 0 and life <= TEN_YEARS
      if not is_valid or counter.needed_until > stamp + 2 * TEN_YEARS then return end
      local used = used_now(counter, latest)
      if used > 0 then has_units = true end
      counter.used, size = used, size + 1
      if known then known[size] = counter else known = { counter } end
    until at > #raw
    state.serial, state.stamp, state.has_units, state.known = serial, stamp, has_units, known
  end
end

-- What stands under a key.
local function state_text(state, counters)
  local text = pack(HEADER, own_mark, state.serial, state.stamp)
  for t = 1, #counters do text = text .. write_counter(counters[t], state.stamp) end
  return text
end
