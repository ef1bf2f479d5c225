-- Gives back what takes were charged by the sliding log.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. Each count is a sorted set: see
-- include/log_entry.lua. Units of the newest entry were never charged afterwards. For those of
-- others no total is changed: see include/refunded_ranges.lua. Entries that hold nothing any more
-- are removed, unless it is the only one.

-- include: setup
-- include: refund_begin
-- include: refunded_ranges
-- include: log_entry
-- include: refund_ranges

-- Whether something was given back of the key.
local is_changed
-- The first entry at this stamp or behind it, and the next one.
local found_stamp, entry, next_entry

-- Units from this running total on that were not given back.
local function net_from(from)
  local behind = (total - from) % MODULUS
  return refunded and behind - units_from(refunded, from) or behind
end

-- Gives back units of an older entry, or of entries that were removed, which begin at this running
-- total. Once it is not exactly known what was given back, entries may be removed whose takes were
-- not given back; `since` is an instant before those then, and otherwise 0.
local function refund_older(before, taken, since)
  local millisecond, is_inexact, held = receipt_stamp - receipt_stamp % MILLISECOND, nil, nil
  if since > millisecond then since = millisecond end
  -- It is asked for only where a range too many comes.
  if refunded and #refunded >= RANGES_SIZE + LOG_MAX_RANGES * RANGE_SIZE then
    held = net_from(oldest_base)
  end
  refunded, is_inexact = give_back(refunded, since, before, taken, total, held, LOG_MAX_RANGES)
  if is_inexact and since == 0 then refunded = with_since(refunded, millisecond) end
end

-- Gives back one receipt. The newest entry, and what was given back, are changed in memory: they
-- are written once for all refunds of the key. Other entries are changed in the set.
local function refund()
  if receipt_stamp < refundable_since then return 0 end
  local window = now < long_until and math.max(horizon, long_window) or horizon
  if receipt_stamp <= stamp and receipt_stamp >= stamp - stamp % MILLISECOND then
    -- A millisecond has one entry.
    entry, next_entry, found_stamp = newest, nil, nil
  elseif receipt_stamp ~= found_stamp then
    local from = format('%.0f', receipt_stamp)
    local found = call('ZRANGEBYSCORE', key, from, '+inf', 'LIMIT', '0', '2')
    entry, next_entry, found_stamp = found[1], found[2], receipt_stamp
  end
  local is_newest, of, before, with = entry == newest, stamp, base, total
  if not is_newest then of, before, with = entry_of(entry) end
  if not of then return 0 end
  local since, _ = 0, nil
  if refunded then _, since = unpack(RANGES_HEAD, refunded) end
  local is_own = floor(of / MILLISECOND) == floor(receipt_stamp / MILLISECOND)
  if not is_own then
    -- Its entry may have been removed: then its units are those of this one.
    if since == 0 or receipt_stamp < since then return 0 end
    of = receipt_stamp
  end
  if of + window <= now then return 0 end
  local taken = math.min(most, net_from(before))
  if is_own and is_newest then
    local from = math.max(before, refunded and ranges_end(refunded) or 0)
    taken = math.min(taken, (total - from) % MODULUS)
    if taken == 0 then return 0 end
    total = (total - taken) % MODULUS
  elseif taken == 0 or total < oldest_base then
    return 0
  else
    local next_stamp, _, next_total = entry_of(next_entry)
    if is_own and not next_stamp then return 0 end
    refund_older(before, taken, since)
    if is_own and net_from(before) == net_from(with) then
      -- Its units are those of the next entry now: they may be taken for later ones, which count.
      found_stamp = nil
      if next_entry == newest then
        base = before
        call('ZREM', key, entry)
      else
        local grown = pack(LOG_ENTRY, LOG_MARK, next_total, before, oldest_base, oldest_stamp,
          next_stamp, horizon, units, serial) .. sub(next_entry, LOG_ENTRY_SIZE + 1)
        call('ZADD', key, next_stamp, grown)
        call('ZREM', key, entry, next_entry)
      end
    end
  end
  is_changed = true

  -- The newest entry holds something, unless it is the only one, and nothing counts.
  local is_empty = net_from(base) == 0
  while net_from(base) == 0 do
    local member = call('ZRANGE', key, '-2', '-2')[1]
    local stamp_before, base_before, total_before = entry_of(member)
    if not stamp_before then break end
    call('ZREM', key, newest)
    found_stamp = nil
    newest, stamp, base, total = member, stamp_before, base_before, total_before
    refunded = refunded and cut(refunded, total)
  end
  if is_empty and net_from(oldest_base) == 0 then
    refunded, base, oldest_base, oldest_stamp = nil, total, total, stamp
  end
  return taken
end

-- The members behind the refunds of a key. First the new ones, so that the key, and with it the
-- expiry, is there all the time.
local function write(more, known)
  local new, gone = {}, {}
  local member = pack(LOG_ENTRY, LOG_MARK, total, base, oldest_base, oldest_stamp, stamp, horizon,
    units, refunded and serial + LOG_WITH_REFUNDED or serial) .. more
  if member ~= newest then
    new[1], new[2], gone[1] = stamp, member, newest
  end
  if refunded ~= known then
    gone[#gone + 1] = known
    if refunded then new[#new + 1], new[#new + 2] = '-1', refunded end
  end
  if #new > 0 then call('ZADD', key, _G.unpack(new)) end
  if #gone > 0 then call('ZREM', key, _G.unpack(gone)) end
end

local function refund_all(number)
  newest = call('ZRANGE', key, '-1', '-1')[1]
-- include: read_log
  local counts, known = newest and stamp <= now, refunded
  local more = newest and sub(newest, LOG_ENTRY_SIZE + 1)
  is_changed, found_stamp = false, nil
  for _ = 1, number do
    next_receipt()
    replies[#replies + 1] = counts and refund() or 0
  end
  if is_changed then write(more, known) end
end

-- include: refund_end
