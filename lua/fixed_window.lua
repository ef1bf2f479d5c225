-- The fixed window: decides whether takes fit into every quota of their keys, and charges those
-- that do.
--
-- KEYS     1 to 64 keys of one slot, each a string: see include/counters.lua
-- ARGV[1]  the questions: see formats.md; of a quota they say max, and window
--          in microseconds
-- ARGV[2]  the call id, which the reply repeats
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: see formats.md. Refunds: see refund/fixed_window.lua.
--
-- A window begins with the first take that is charged to it. The state of a key says when its
-- window began, and the units charged since then. All fields: include/counters.lua and
-- include/fixed_window.lua.

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, concat, format = math.floor, table.concat, string.format

local clock = not ARGV[3] and call('TIME')
local now = clock and clock[1] * 1000000 + clock[2] or ARGV[3] + 0
local question, keys, replies, is_left = ARGV[1], KEYS, { pack('>I8I8', now, ARGV[2]) }, false
local kind, at = unpack('>BI2', question)
local values = keys[2] and call('MGET', _G.unpack(keys)) or { pcall('GET', keys[1]) }
-- include: holds
local rule_at, quotas, expiry, slice, max, window, this_slice, expiry_text, _

-- The usual case: one quota, takes of one cost, and a key that was charged under windows of this
-- length alone, or never. All else is left for the core.
local place, places = 1, kind == USUAL and #keys or 0
while place <= places do
  local raw, rule_from, rows, cost, takes, deadline = values[place], nil, nil, nil, nil, nil
  rule_from, rows, cost, takes, deadline, at = unpack(RECORD, question, at)
  if rule_from ~= rule_at then
    rule_at, expiry_text = rule_from, nil
    quotas, expiry, slice, max, window = unpack(FIXED_RULE, question, rule_from)
    this_slice = floor(now / slice)
  end
  -- include: calendar_read

  local mark, serial, last_charge, window_then, refundable_since, start, used
  if raw and #raw == FIXED_STATE_SIZE then
    mark, serial, last_charge, _, window_then, _, refundable_since, start, used =
      unpack(FIXED_STATE, raw)
  else
    mark, serial, last_charge, window_then, refundable_since, start, used =
      not raw and FIXED_MARK, 0, now, window, now, now, 0
  end
  local is_usual = mark == FIXED_MARK and quotas == 1 and rows == 1
    and now <= deadline and cost > 0 and cost <= max
    and window_then == window and last_charge <= now and refundable_since <= now
    and start <= last_charge and used <= max

  if used == 0 or start + window <= now then
    if last_charge ~= now then serial = 0 end
    refundable_since, start, used = now, now, 0
  end
  local allowed = cost * fitting <= max - used and fitting or floor((max - used) / cost)
  local reset, answer = start + window - now, ''
  if is_usual and allowed > 0 then
    used, serial = used + cost * allowed, (serial + cost * allowed) % MODULUS
    local state = pack(FIXED_STATE, FIXED_MARK, serial, now, max, window, now + window, refundable_since,
      start, used)
    local written
    if raw and floor(last_charge / slice) == this_slice then
      written = pcall('SET', keys[place], state, 'KEEPTTL')
    else
      -- The same for all keys of a rule: to format a number takes as long as a command. A value of
      -- another type is nil above, and stays: NX.
      expiry_text = expiry_text or format('%.0f', expiry)
      written = pcall('SET', keys[place], state, 'PX', expiry_text, raw and 'XX' or 'NX')
    end
    is_usual = written and written.ok
    answer = pack(ANSWER, ALLOWED, allowed, serial, max - used, reset)
  end
  if is_usual and allowed < takes then
    local wait = used + cost > max and reset or 0
    answer = answer
      .. pack(ANSWER, DENIED, takes - allowed, wait, max - used, used > 0 and reset or 0)
  end
  replies[place + 1] = is_usual and answer
  -- include: calendar_charge
  is_left, place = is_left or not is_usual, next_place
end
if kind == USUAL and not is_left then return concat(replies) end

local max, min, ceil, byte = math.max, math.min, math.ceil, string.byte

-- All of the core stands in one function: what its inner ones use of the script costs less so.
local function core()
-- include: core_begin
-- include: fixed_window
-- include: fixed_window_take
-- include: counters
-- include: counters_take
-- include: permits
-- include: calendar
-- include: core
end
return core()
