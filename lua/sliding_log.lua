-- The sliding log: decides whether takes fit into every quota of their keys, and charges those
-- that do.
--
-- KEYS     1 to 64 keys of one slot, each a log: a sorted set
-- ARGV[1]  the questions: see formats.md; of a quota they say max, and window
--          in microseconds
-- ARGV[2]  the call id, which the reply repeats
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see formats.md. Refunds: see refund/sliding_log.lua.
--
-- A member of the set, an entry, holds all takes of a millisecond. Its score is the instant of the
-- last of them. It says a running total of units, its own included, and its base: that total before
-- it. So the units inside of a window are the newest total less the base of the oldest entry in the
-- window. An entry's fields: mark, total, base, base and stamp of the oldest entry of the set, its
-- own stamp, the window and the max that it was charged under, serial number: see
-- include/log_states.lua.

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, concat, format, sub = math.floor, table.concat, string.format, string.sub

local clock = not ARGV[3] and call('TIME')
local now = clock and clock[1] * 1000000 + clock[2] or ARGV[3] + 0
local now_text = clock and clock[1] .. sub('00000' .. clock[2], -6) or ARGV[3]
local question, replies, is_left = ARGV[1], { pack('>I8I8', now, ARGV[2]) }, false
local kind, at = unpack('>BI2', question)
local rule_at, quotas, lease, expiry, slice, max, window, edge, this_slice, expiry_text, _

-- The usual case: one quota, no lease, takes of one cost, and a key whose newest entry is inside of
-- the window and was charged under a window of this length; or a new key. All else is left for the
-- core: the conditions are those of `is_usual`.
for place = 1, kind == USUAL and #KEYS or 0 do
  local key, rule_from, rows, cost, takes, deadline = KEYS[place], nil, nil, nil, nil, nil
  rule_from, rows, cost, takes, deadline, at = unpack(RECORD, question, at)
  if rule_from ~= rule_at then
    quotas, _, _, lease, expiry, slice, max, window = unpack(LOG_RULE, question, rule_from)
    rule_at, edge, expiry_text, this_slice = rule_from, nil, nil, floor(now / slice)
  end

  local is_usual = quotas == 1 and lease == 0 and rows == 1 and now <= deadline
    and cost > 0 and cost <= max
  -- The newest entry describes the whole set. An error is no entry: only a key without one is new.
  local found = is_usual and pcall('ZRANGE', key, '-1', '-1')
  local newest = found and (found[1] or found.err)
  local mark, total, base, oldest_base, oldest_stamp, stamp, horizon, serial
  if newest and #newest == LOG_ENTRY_SIZE then
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, _, serial = unpack(LOG_ENTRY, newest)
  else
    mark, total, base, oldest_base, oldest_stamp, stamp, horizon, serial =
      not newest and LOG_MARK, 0, 0, 0, now, now, window, 0
  end
  -- A serial number of 2^52 or more says that units of older entries were given back.
  is_usual = is_usual and mark == LOG_MARK and horizon == window and stamp <= now and stamp + window > now
    and (total > oldest_base or not newest) and total < MODULUS - max and serial < MODULUS - max

  -- The oldest entry inside of the window.
  local first_base, first_stamp, has_left = oldest_base, oldest_stamp, oldest_stamp <= now - window
  if is_usual and has_left then
    edge = edge or format('%.0f', now - window)
    local first = call('ZRANGEBYSCORE', key, '(' .. edge, '+inf', 'LIMIT', '0', '1')[1]
    is_usual = first and #first >= LOG_ENTRY_SIZE
    if is_usual then mark, _, first_base, _, _, first_stamp = unpack(LOG_ENTRY, first) end
  end
  local used = total - first_base
  local allowed = cost * takes <= max - used and takes or floor((max - used) / cost)
  -- Every entry holds a unit. So if just one has to leave for the next take to fit, the oldest
  -- entry suffices.
  is_usual = is_usual and mark == LOG_MARK and used >= 0 and used <= max
    and (allowed == takes or used + allowed * cost + cost == max + 1)

  local answer = ''
  if is_usual and allowed > 0 then
    local charged = cost * allowed
    local merges = newest and floor(stamp / 1000) == floor(now / 1000)
    if not merges then base = total end
    if merges and oldest_stamp == stamp then oldest_stamp = now end
    if merges and first_stamp == stamp then first_stamp = now end
    total, serial, used = total + charged, serial + charged, used + charged
    -- Entries that have left the window are removed when more units are held than the window can
    -- have entries: it has at most max, and one in a millisecond.
    local is_full = has_left and total - oldest_base > math.min(max, window / 1000)
    if is_full then oldest_base, oldest_stamp = first_base, first_stamp end
    is_usual = 1 == pcall('ZADD', key, now_text,
      pack(LOG_ENTRY, LOG_MARK, total, base, oldest_base, oldest_stamp, now, window, max, serial))
    if is_usual then
      if merges then call('ZREMRANGEBYRANK', key, '-2', '-2') end
      if is_full then call('ZREMRANGEBYSCORE', key, '0', edge) end
      if not newest or floor(stamp / slice) ~= this_slice then
        -- The same for all keys of a rule: to format a number takes as long as a command.
        expiry_text = expiry_text or format('%.0f', expiry)
        is_usual = 1 == pcall('PEXPIRE', key, expiry_text)
        -- No key is left without an expiry.
        if not is_usual and not newest then call('DEL', key) end
      end
      answer = pack(ANSWER, ALLOWED, allowed, serial, max - used, window)
      stamp = now
    end
  end
  if is_usual and allowed < takes then
    answer = answer .. pack(ANSWER, DENIED, takes - allowed, first_stamp + window - now, max - used,
      stamp + window - now)
  end
  replies[place + 1] = is_usual and answer
  is_left = is_left or not is_usual
end
if kind == USUAL and not is_left then return concat(replies) end
-- Takes over several counts, each of one quota without a lease.
if kind == SEVERAL then
-- include: joint_sliding_log
-- include: joint_permits
-- include: joint
end

local max, min, ceil, byte = math.max, math.min, math.ceil, string.byte
local values = kind == HOLDS and call('MGET', _G.unpack(KEYS))

-- All of the core stands in one function: what its inner ones use of the script costs less so.
local function core()
-- include: core_begin
-- include: refunded_ranges
-- include: log_states
-- include: log_takes
-- include: permit_states
-- include: core
end
return core()
