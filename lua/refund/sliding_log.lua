-- Gives back what takes were charged by the sliding log.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. Each count is a sorted set: see
-- include/log_entry.lua. Units of the newest entry were never charged afterwards. For those of
-- others no total is changed: see include/given_back.lua. Entries that hold nothing any more are
-- removed, unless it is the only one.

-- include: setup
-- include: given_back
-- include: log_entry
-- include: refund_begin
-- include: give_back

local MAX_RUNS = 32

-- Units from this running total on that were not given back.
local function net_from(from)
  local behind = (total - from) % MODULUS
  return given_back and behind - units_from(given_back, from) or behind
end

-- Gives back units of an older entry, or of entries that were removed, which begin at this running
-- total. Once it is not exactly known what was given back, entries may be removed whose takes were
-- not given back; `since` is an instant before those then, and otherwise 0.
local function refund_older(before, taken, since)
  local millisecond, is_inexact, held = receipt_stamp - receipt_stamp % MILLISECOND, nil, nil
  if since > millisecond then since = millisecond end
  -- It is asked for only where a run too many comes.
  if given_back and #given_back >= RUNS_SIZE + MAX_RUNS * RUN_SIZE then
    held = net_from(oldest_base)
  end
  given_back, is_inexact = give_back(given_back, since, before, taken, total, held, MAX_RUNS)
  if is_inexact and since == 0 then given_back = with_since(given_back, millisecond) end
end

local function refund()
  newest = call('ZRANGE', key, '-1', '-1')[1]
-- include: read_log
  if not newest or stamp > now or receipt_stamp < refundable_since then return 0 end
  local window, needed = horizon, 0
  if now < long_until then
    -- Older entries may have been dropped because that many newer units sufficed.
    window, needed = math.max(horizon, long_window), long_units
  end
  local found = call('ZRANGEBYSCORE', key, stamp_text, '+inf', 'LIMIT', '0', '2')
  local entry, behind = found[1], found[2]
  local of, before, with = entry_of(entry)
  if not of then return 0 end
  local known, since, _ = given_back, 0, nil
  if known then _, since = unpack(RUNS_HEAD, known) end
  local is_own = floor(of / MILLISECOND) == floor(receipt_stamp / MILLISECOND)
  if not is_own then
    -- Its entry may have been removed: then its units are those of this one.
    if since == 0 or receipt_stamp < since then return 0 end
    of = receipt_stamp
  end
  if of + window <= now then return 0 end
  local taken = math.min(most, net_from(before))
  if needed > 0 then taken = math.min(taken, math.max(net_from(oldest_base) - needed, 0)) end
  local gone, new = {}, {}
  if is_own and entry == newest then
    taken = math.min(taken, (total - math.max(before, known and runs_end(known) or 0)) % MODULUS)
    total = (total - taken) % MODULUS
  elseif taken == 0 or total < oldest_base then
    return 0
  else
    refund_older(before, taken, since)
    if is_own and net_from(before) == net_from(with) then
      gone[1] = entry
      -- Its units are those of the next entry now: they may be taken for later ones, which count.
      if behind == newest then
        base = before
      else
        local next_stamp, _, next_total = entry_of(behind)
        if not next_stamp then return 0 end
        local grown = pack(ENTRY, LOG_MARK, next_total, before, oldest_base, oldest_stamp,
          next_stamp, horizon, units, serial) .. sub(behind, ENTRY_SIZE + 1)
        new[1], new[2], gone[2] = next_stamp, grown, behind
      end
    end
  end
  if taken == 0 then return 0 end

  -- The newest entry holds something, unless it is the only one, and nothing counts.
  local rank, last = -2, newest
  local is_empty = net_from(base) == 0
  while net_from(base) == 0 do
    local member = call('ZRANGE', key, rank, rank)[1]
    local stamp_before, base_before, total_before = entry_of(member)
    if not stamp_before then break end
    if member == gone[2] then
      stamp_before, base_before, total_before = entry_of(new[2])
      member = new[2]
    end
    if member ~= gone[1] then
      gone[#gone + 1], last = last, member
      stamp, base, total = stamp_before, base_before, total_before
      given_back = given_back and cut(given_back, total)
    end
    rank = rank - 1
  end
  if is_empty and net_from(oldest_base) == 0 then
    given_back, base, oldest_base, oldest_stamp = nil, total, total, stamp
  end
  -- First the new members, so that the key, and with it the expiry, is there all the time.
  local member = pack(ENTRY, LOG_MARK, total, base, oldest_base, oldest_stamp, stamp, horizon,
    units, given_back and serial + WITH_GIVEN_BACK or serial) .. sub(newest, ENTRY_SIZE + 1)
  if member ~= last then
    new[#new + 1], new[#new + 2] = stamp, member
    gone[#gone + 1] = last
  end
  if given_back ~= known then
    if known then gone[#gone + 1] = known end
    if given_back then new[#new + 1], new[#new + 2] = '-1', given_back end
  end
  if #new > 0 then call('ZADD', key, _G.unpack(new)) end
  if #gone > 0 then call('ZREM', key, _G.unpack(gone)) end
  return taken
end

-- include: refund_end
