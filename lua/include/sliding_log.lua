-- States of the sliding log, for takes and for refunds.
--
-- A state is a sorted set. One member, an entry, holds all takes of a millisecond, or of a longer
-- time that no window tells apart. Its score is the instant of the last of them; the member itself
-- is a byte that no text begins with, and big-endian integers of 7 bytes, so that members of one
-- score are in the order of their totals:
--   total         running total of all costs, with this entry, modulo 2^52
--   base          the same before this entry: the sum inside a window is one subtraction
--   oldest_base   the base of the oldest entry of the set
--   oldest_stamp  the score of the oldest entry of the set
--   stamp         this entry's score, so that no command has to ask for it
--   horizon       the longest window of the quotas that it was charged under
--   largest       the largest max of these
--   serial        units ever charged, modulo 2^52: tells takes of one instant apart; and 2^52 more
--                 if units were given back
-- An entry has four more where longer windows of earlier charges still need something of the set,
-- or the clock went back:
--   long_window, long_units   the entries inside of this window are still needed: the newest, which
--                             hold that many units, each by itself, and all older ones as one entry
--   long_until                until when
--   refundable_since          takes that were charged before this are not given back
--
-- Where units of other entries than the newest were given back, the set has one more member, with
-- the score -1: see include/refunded_ranges.lua. The units are numbered by the running totals.
--
-- The newest entry describes the whole set. Once loaded, a state has
--   key
--   newest        the newest entry; nil if there is none, or nothing in the set counts
--   total, base, oldest_base, oldest_stamp, stamp, horizon, largest, serial
-- and in some cases
--   more          the fields that few entries have, and `refunded`: what was given back
--   is_stale      true if nothing in the set counts
--
-- Uses   what `refunded_ranges` gives

-- An entry's stamp, and the running totals before and with it; nil if the member is no entry.
local function entry_of(member)
  if not member or #member < LOG_ENTRY_SIZE then return nil end
  local mark, with, before, _, _, of = unpack(LOG_ENTRY, member)
  if mark ~= LOG_MARK then return nil end
  return of, before, with
end

-- The fields that few entries have. `text` is that of an entry, or nil.
local function more_of(text)
  local more = { refunded = nil, long_window = 0, long_units = 0, long_until = 0,
    refundable_since = 0 }
  if text then
    more.long_window, more.long_units, more.long_until, more.refundable_since =
      unpack(LOG_MORE, text, LOG_ENTRY_SIZE + 1)
  end
  return more
end

-- What was given back, or nil.
local function refunded_of(state) return state.more and state.more.refunded end

-- Reads the newest entry into a state that is still that of an empty set.
local function read_log(state, member)
  local mark, total, base, oldest_base, oldest_stamp, stamp, horizon, largest, serial, more, _
  if #member == LOG_ENTRY_SIZE or #member == LOG_ENTRY_AND_MORE_SIZE then
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, largest, serial =
      unpack(LOG_ENTRY, member)
    if #member > LOG_ENTRY_SIZE then more = more_of(member) end
  elseif #member == RESET_SIZE and byte(member) == RESET_MARK then
    -- A log in which nothing counts.
    mark, total, stamp, horizon, serial, more = LOG_MARK, 0, now, 0, 0, more_of()
    _, more.refundable_since = unpack(RESET, member)
  end
  if mark ~= LOG_MARK or total >= MODULUS or horizon > TEN_YEARS then
    state.is_stale = true
    return
  end
  local is_refunded_from = serial >= LOG_WITH_REFUNDED
  if is_refunded_from then serial = serial - LOG_WITH_REFUNDED end
  if more then state.more = more end
  if now >= stamp + horizon and not (more and now < more.long_until) then
    -- The serial numbers run from zero again, unless a take with such a number may have the same
    -- stamp: one of this very instant, or one from before the clock went back.
    local since = more and more.refundable_since or 0
    if since > now or stamp == now then state.serial = serial end
    if more and since <= now - now % MILLISECOND then more.refundable_since = 0 end
    state.is_stale = true
    return
  end
  state.newest, state.total, state.base, state.stamp, state.serial = member, total, base, stamp, serial
  state.oldest_base, state.oldest_stamp = oldest_base, oldest_stamp
  state.horizon, state.largest = horizon, largest
  if is_refunded_from then
    local refunded = call('ZRANGE', state.key, '0', '0')[1]
    if are_ranges(refunded) and total >= oldest_base then
      state.more = more or more_of()
      state.more.refunded = refunded
    end
  end
end

-- The units from this running total on that were not given back.
local function units_behind(state, from)
  local refunded, behind = refunded_of(state), (state.total - from) % MODULUS
  return refunded and behind - units_from(refunded, from) or behind
end

-- The newest entry of a state, as it is written.
local function entry_text(state, stamp, horizon, largest)
  local more, serial, text = state.more, state.serial, ''
  if more and more.refunded then serial = serial + LOG_WITH_REFUNDED end
  if more and (more.long_window > 0 or more.refundable_since > 0) then
    text = pack(LOG_MORE, more.long_window, more.long_units, more.long_until,
      more.refundable_since)
  end
  return pack(LOG_ENTRY, LOG_MARK, state.total, state.base, state.oldest_base, state.oldest_stamp,
    stamp, horizon, largest, serial) .. text
end
