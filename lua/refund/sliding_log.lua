-- Gives back what takes were charged by the sliding log.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. Each count is a sorted set: see
-- include/sliding_log.lua. Units of the newest entry are taken out of its total, as if they
-- had never been charged. Of others no total is changed: see include/refunded_ranges.lua. Entries
-- that hold nothing any more are removed, unless it is the only one.

-- include: refund_begin
-- include: refunded_ranges
-- include: sliding_log
-- include: refunded_ranges_add

-- The first entry at this stamp or behind it, and the next one.
local found_stamp, entry, next_entry

-- Gives back units of an older entry, or of entries that were removed, which begin at this running
-- total. Once it is not exactly known what was given back, entries may be removed whose takes were
-- not given back; `since` is an instant before those then, and otherwise 0.
local function refund_older(state, from, taken, since)
  local refunded, is_inexact = refunded_of(state), nil
  local millisecond = receipt_stamp - receipt_stamp % MILLISECOND
  refunded, is_inexact =
    give_back(refunded, min(since, millisecond), from, taken, state.oldest_base, LOG_MAX_RANGES)
  if is_inexact and since == 0 then refunded = with_since(refunded, millisecond) end
  state.more = state.more or more_of()
  state.more.refunded = refunded
end

-- The entry of the receipt: its stamp, the totals before and with it, and whether it is the newest.
-- Where it was removed, that of the next one.
local function entry_of_receipt(state)
  local stamp = state.stamp
  if receipt_stamp <= stamp and receipt_stamp >= stamp - stamp % MILLISECOND then
    -- A millisecond has one entry.
    entry, next_entry, found_stamp = state.newest, nil, nil
  elseif receipt_stamp ~= found_stamp then
    local from = format('%.0f', receipt_stamp)
    local found = call('ZRANGEBYSCORE', state.key, from, '+inf', 'LIMIT', '0', '2')
    entry, next_entry, found_stamp = found[1], found[2], receipt_stamp
  end
  if entry == state.newest then return stamp, state.base, state.total, true end
  return entry_of(entry)
end

-- Removes an older entry that holds nothing any more. Its units are those of the next entry now:
-- they may be taken for later ones, which count.
local function remove_older(state, from, next_stamp, next_total)
  found_stamp = nil
  if next_entry == state.newest then
    state.base = from
    call('ZREM', state.key, entry)
    return
  end
  local grown = pack(LOG_ENTRY, LOG_MARK, next_total, from, state.oldest_base, state.oldest_stamp,
    next_stamp, state.horizon, state.largest, state.serial) .. sub(next_entry, LOG_ENTRY_SIZE + 1)
  call('ZADD', state.key, next_stamp, grown)
  call('ZREM', state.key, entry, next_entry)
end

-- The newest entry holds something, unless it is the only one, and nothing counts.
local function drop_empty(state)
  if units_behind(state, state.base) > 0 then return end
  repeat
    local member = call('ZRANGE', state.key, '-2', '-2')[1]
    local stamp, base, total = entry_of(member)
    if not stamp then break end
    call('ZREM', state.key, state.newest)
    found_stamp = nil
    state.newest, state.stamp, state.base, state.total = member, stamp, base, total
    local refunded = refunded_of(state)
    if refunded then state.more.refunded = cut(refunded, total) end
  until units_behind(state, state.base) > 0
  if units_behind(state, state.oldest_base) == 0 then
    if state.more then state.more.refunded = nil end
    state.base, state.oldest_base, state.oldest_stamp = state.total, state.total, state.stamp
  end
end

-- Gives back one receipt. The newest entry, and what was given back, are changed in memory: they
-- are written once for all refunds of the key. Other entries are changed in the set.
local function refund(state)
  local more, window = state.more, state.horizon
  if more and receipt_stamp < more.refundable_since then return 0 end
  if more and now < more.long_until then window = max(window, more.long_window) end
  local stamp, from, with, is_newest = entry_of_receipt(state)
  if not stamp then return 0 end
  local refunded, since, _ = refunded_of(state), 0, nil
  if refunded then _, since = unpack(RANGES_HEAD, refunded) end
  local is_own = floor(stamp / MILLISECOND) == floor(receipt_stamp / MILLISECOND)
  if not is_own then
    -- Its entry may have been removed: then its units are those of this one.
    if since == 0 or receipt_stamp < since then return 0 end
    stamp = receipt_stamp
  end
  if stamp + window <= now then return 0 end
  local taken = min(max_units, units_behind(state, from))
  if is_own and is_newest then
    local first = max(from, refunded and ranges_end(refunded) or 0)
    taken = min(taken, (state.total - first) % MODULUS)
    if taken == 0 then return 0 end
    state.total = (state.total - taken) % MODULUS
  elseif taken == 0 or state.total < state.oldest_base then
    return 0
  else
    local next_stamp, _, next_total = entry_of(next_entry)
    if is_own and not next_stamp then return 0 end
    refund_older(state, from, taken, since)
    if is_own and units_behind(state, from) == units_behind(state, with) then
      remove_older(state, from, next_stamp, next_total)
    end
  end
  drop_empty(state)
  return taken
end

local function load()
  local state = { key = key, newest = nil, total = 0, base = 0, oldest_base = 0, oldest_stamp = now,
    stamp = now, horizon = 0, largest = 0, serial = 0 }
  local newest = call('ZRANGE', key, '-1', '-1')[1]
  if newest then read_log(state, newest) end
  return state
end

-- Writes the members behind the refunds of a key. First the new ones, so that the key, and with it
-- the expiry, is there all the time.
local function write(state, known)
  local new, gone, refunded = {}, {}, refunded_of(state)
  local member = entry_text(state, state.stamp, state.horizon, state.largest)
  if member ~= state.newest then
    new[1], new[2], gone[1] = state.stamp, member, state.newest
  end
  if refunded ~= known then
    gone[#gone + 1] = known
    if refunded then new[#new + 1], new[#new + 2] = '-1', refunded end
  end
  if #new > 0 then call('ZADD', key, _G.unpack(new)) end
  if #gone > 0 then call('ZREM', key, _G.unpack(gone)) end
end

local function refund_all(number)
  local state, is_changed = load(), false
  local known, counts = refunded_of(state), state.newest and state.stamp <= now
  found_stamp = nil
  for _ = 1, number do
    next_receipt()
    local units = counts and refund(state) or 0
    is_changed = is_changed or units > 0
    replies[#replies + 1] = units
  end
  if is_changed then write(state, known) end
end

-- include: refund_end
