-- Gives back what an earlier take was charged, once, whatever algorithm keeps the count.
--
-- KEYS[1]  the count
-- KEYS[2]  what was given back: a sorted set, scored by the stamps of the takes
-- ARGV[1]  the token: stamp, serial number and units of the take, big-endian integers of 7 bytes
-- ARGV[2]  the most units to give back
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: the units that were given back; 0 if that was done before, or if they count no longer
--
-- A member of KEYS[2] is a token and the units given back. It stays for twice as long as a charge counts, unless
-- there are too many: then the oldest go, and nothing as old is given back any more.

local key, records, call, pack, unpack = KEYS[1], KEYS[2], redis.call, struct.pack, struct.unpack
local MODULUS, SLICE = 4503599627370496, 1048576
local MOST_REWRITTEN, MOST_RECORDS = 4096, 65536
local token = ARGV[1]
local stamp, number, charged = unpack('>I7I7I7', token)
local units = ARGV[2] + 0
if units > charged then units = charged end

local now = ARGV[3]
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
now = now + 0
local function text(integer) return string.format('%.0f', integer) end

-- include: formats

for _, record in ipairs(call('ZRANGEBYSCORE', records, text(stamp), text(stamp))) do
  if string.sub(record, 1, 21) == token then return 0 end
end
if call('ZCARD', records) >= MOST_RECORDS then
  local oldest = call('ZRANGE', records, '0', '0', 'WITHSCORES')[2]
  if stamp <= oldest + 0 then return 0 end
end

-- Takes units out of the entry of a list that took them in, and tells how many. The list begins with the first
-- entry that is not stamped before the take; an entry is { stamp, running total, running total before it }. An
-- entry without any units goes, unless it is the only one; one that has left the window is left alone.
local function take_out(entries, resolution, window, is_only)
  local first = entries[1]
  if not first or first[1] + window <= now then return 0 end
  if math.floor(first[1] / resolution) ~= math.floor(stamp / resolution) then return 0 end
  local held = (first[2] - first[3]) % MODULUS
  local refunded = math.min(units, held)
  for at, entry in ipairs(entries) do
    entry[2] = (entry[2] - refunded) % MODULUS
    if at > 1 then entry[3] = (entry[3] - refunded) % MODULUS end
  end
  if refunded == held and not is_only then table.remove(entries, 1) end
  return refunded
end

-- Each kind of state answers: the units that were given back, and how long a charge counts at most.

local function of_log()
  local ENTRY, ENTRY_SIZE, MORE_SIZE = LOG.entry, LOG.entry_size, LOG.more_size
  local newest = call('ZRANGE', key, '-1', '-1')[1]
  if not newest or (#newest ~= ENTRY_SIZE and #newest ~= ENTRY_SIZE + MORE_SIZE) then return 0, 0 end
  local mark, total, _, base, since, last, horizon, most, serial = unpack(ENTRY, newest)
  if mark ~= LOG.mark or total >= MODULUS or horizon > 315360000000000 or last > now then return 0, 0 end
  local more = string.sub(newest, ENTRY_SIZE + 1)
  local long_window, long_units, long_until, begun = 0, 0, 0, 0
  if more ~= '' then long_window, long_units, long_until, begun = unpack(LOG.more, more) end
  if stamp < begun then return 0, 0 end
  if now >= last + horizon and now >= long_until then return 0, 0 end
  local counting = horizon
  if now < long_until then
    if long_window > counting then counting = long_window end
    -- Older entries may have been dropped for so many units that are newer.
    units = math.max(math.min(units, (total - base) % MODULUS - long_units), 0)
  end

  local number_behind = call('ZCOUNT', key, text(stamp), '+inf')
  if number_behind == 0 or number_behind > MOST_REWRITTEN then return 0, 0 end
  local members = call('ZRANGEBYSCORE', key, text(stamp), '+inf')
  local all = call('ZCARD', key)
  local entries = {}
  for at, member in ipairs(members) do
    if #member < ENTRY_SIZE then return 0, 0 end
    local _, with, before, _, _, of = unpack(ENTRY, member)
    entries[at] = { of, with, before }
  end
  local refunded = take_out(entries, 1000, counting, all == 1)
  if refunded > 0 then
    -- The last one says how the whole set is; it may be another one now.
    if #entries < #members then
      if entries[1] == nil then
        local before = call('ZRANGE', key, '-2', '-2')[1]
        if #before < ENTRY_SIZE then return 0, 0 end
        local _, with, under, _, _, of = unpack(ENTRY, before)
        entries[1] = { of, with, under }
        members[#members + 1] = before
        if all == 2 then since = of end
      elseif all == #members then
        since = entries[1][1]
      end
    end
    local added = {}
    for _, entry in ipairs(entries) do
      added[#added + 1] = text(entry[1])
      added[#added + 1] =
        pack(ENTRY, mark, entry[2], entry[3], base, since, entry[1], horizon, most, serial)
    end
    added[#added] = added[#added] .. more
    -- First the new ones, so that the key, and with it the expiry, is there all the time.
    local stays = {}
    for at = 1, #added, 2 do
      call('ZADD', key, added[at], added[at + 1])
      stays[added[at + 1]] = true
    end
    for _, member in ipairs(members) do
      if not stays[member] then call('ZREM', key, member) end
    end
  end
  return refunded, math.max(horizon, long_window)
end

local function of_tallies(raw)
-- include: pace
  local mark, serial, newest
  if #raw > STATE.head_size then mark, serial, newest = unpack(STATE.head, raw) end
  if not mark or mark < SECTIONS.mark or mark > FIXED.mark then return nil end
  if newest > now then return 0, 0 end

  -- Units that were charged after the take, and not given back since.
  local after = (serial - number) % MODULUS
  local later = after
  -- Only a bucket has to know which of them have drained. Of very many it takes the worst.
  local known = mark == BUCKET.mark and call('ZRANGEBYSCORE', records, text(stamp), '+inf', 'LIMIT', '0', '4096') or {}
  for _, record in ipairs(known) do
    if #record == 28 then
      local _, of, _, given_back = unpack('>I7I7I7I7', record)
      if (serial - of) % MODULUS < after then later = later - given_back end
    end
  end
  if later < 0 then later = 0 end

  local state, at = { string.sub(raw, 1, STATE.head_size) }, STATE.head_size + 1
  local live, most, longest = false, 0, 0
  while at + FIXED.size - 1 <= #raw do
    local refunded, life, tally = 0
    if mark == SECTIONS.mark then
      if at + SECTIONS.size - 1 > #raw then return 0, 0 end
      local max, window, needed, begun, resolution, base, entries = unpack(SECTIONS.tally, raw, at)
      local from = at + SECTIONS.size
      at, life = from + SECTIONS.entry_size * entries, window
      if at - 1 > #raw or resolution == 0 then return 0, 0 end
      local behind, kept, before = {}, {}, base
      for place = from, at - 1, SECTIONS.entry_size do
        local of, with = unpack(SECTIONS.entry, raw, place)
        if of < stamp then
          kept[#kept + 1] = string.sub(raw, place, place + SECTIONS.entry_size - 1)
        else
          behind[#behind + 1] = { of, with, before }
        end
        before = with
        if of + window > now and with ~= base and needed > now then live = true end
      end
      if stamp >= begun then refunded = take_out(behind, resolution, window, entries == 1) end
      for _, entry in ipairs(behind) do kept[#kept + 1] = pack(SECTIONS.entry, entry[1], entry[2]) end
      tally = pack(SECTIONS.tally, max, window, needed, begun, resolution, base, #kept) .. table.concat(kept)
    elseif mark == BUCKET.mark then
      if at + BUCKET.size - 1 > #raw then return 0, 0 end
      local max, window, burst, needed, begun, start, poured
      max, window, burst, needed, begun, start, poured, at = unpack(BUCKET.tally, raw, at)
      local pace_units, pace_micros = pace_of(max, window)
      life = time_for(math.max(max, burst), pace_units, pace_micros)
      local gone, rest = drained(math.max(now - start, 0), pace_units, pace_micros)
      if start == 0 then gone, rest, life = 0, false, window end
      if poured > gone and needed > now then live = true end
      if rest then gone = gone + 1 end
      -- First in, first out: those of the take that have not drained.
      if stamp >= begun then
        refunded = math.min(units, math.max(math.max(poured - gone, 0) - later, 0))
      end
      tally = pack(BUCKET.tally, max, window, burst, needed, begun, start, poured - refunded)
    else
      local max, window, needed, begun, start, held
      max, window, needed, begun, start, held, at = unpack(FIXED.tally, raw, at)
      life = window
      if start + window > now then
        live = live or (held > 0 and needed > now)
        if stamp >= start and stamp >= begun then refunded = math.min(units, held) end
      end
      tally = pack(FIXED.tally, max, window, needed, begun, start, held - refunded)
    end
    if refunded > most then most = refunded end
    if life > longest then longest = life end
    state[#state + 1] = tally
  end
  if not live then return 0, 0 end
  if most > 0 then call('SET', key, table.concat(state), 'KEEPTTL') end
  return most, longest
end

local refunded, longest
local raw = redis.pcall('GET', key)
if raw and type(raw) ~= 'string' then
  refunded, longest = of_log()
elseif raw then
  refunded, longest = of_tallies(raw)
  if not refunded then
    return redis.error_reply('WRONGTYPE the key holds something that is not a limiter')
  end
end

if refunded and refunded > 0 then
  call('ZADD', records, text(stamp), token .. pack('>I7', refunded))
  call('ZREMRANGEBYSCORE', records, '-inf', '(' .. text(now - 2 * longest))
  call('ZREMRANGEBYRANK', records, '0', text(-MOST_RECORDS - 1))
  call('PEXPIRE', records, text((2 * longest + 2 * SLICE) / 1000))
end
return refunded or 0
