-- Gives back what takes were charged by the generic cell rate algorithm.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. Each count is a string: see
-- include/counters.lua and include/gcra.lua. What was given back stands apart: `since` is
-- the instant since which all counters can tell takes apart, and with another one it is void.

-- include: refund_begin
-- include: pace
-- include: gcra
-- include: counters
-- include: refunded_ranges
-- include: refunded_ranges_add

-- What was given back of the count in hand (nil if nothing was), and whether a refund changed that.
local refunded, is_refunded_changed
-- The most units that were charged after the take and not given back since, for each counter.
local charged_later

-- Units of which at least a part has drained since then.
local function touched(counter, instant)
  local gone, rest = drained(max(now - instant, 0), counter.quota)
  return rest and gone + 1 or gone
end

-- The units of the take that have not begun to drain, first in, first out:
--
--   units    ... | earlier takes | this take | later takes
--            drains from here on               charged_later
--
-- Where the bucket drained at one pace since the take, no more of the take has drained than all
-- that has drained since then.
local function refund_counter(counter)
  local whole = counter.units - touched(counter, counter.start)
  local left = whole - charged_later
  if receipt_stamp >= counter.paced_since then
    left = max(left, receipt_units - touched(counter, receipt_stamp))
  end
  local taken = max(min(max_units, left, whole), 0)
  counter.units = counter.units - taken
  return taken
end

local function since_of(counters)
  local since = 0
  for t = 1, #counters do since = max(since, counters[t].refundable_since) end
  return since
end

local ranges = {}

function ranges.read(state, apart)
  refunded, is_refunded_changed = pcall('GET', apart), false
  if are_ranges(refunded) then
    local _, since = unpack(RANGES_HEAD, refunded)
    if since ~= since_of(state.known) or ranges_end(refunded) > state.serial then refunded = nil end
  else
    refunded = nil
  end
end

function ranges.before(state)
  charged_later = (state.serial - receipt_serial) % MODULUS
  if refunded then
    charged_later = max(charged_later - units_from(refunded, receipt_serial), 0)
  end
end

function ranges.after(state, taken)
  local first, serial, counters = receipt_serial - receipt_units, state.serial, state.known
  -- Where that instant is after the last charge, the serial numbers may run from zero again then.
  local since = since_of(counters)
  if first < 0 or receipt_serial > serial or since > state.stamp then return end
  local used = 0
  for t = 1, #counters do used = max(used, used_now(counters[t], now)) end
  local counts_from = serial - used - (refunded and units_from(refunded, 0) or 0)
  refunded = give_back(refunded, since, first, taken, counts_from, GCRA_MAX_RANGES)
  -- They end behind the last unit if a receipt was given back twice.
  if ranges_end(refunded) > serial then refunded = nil end
  is_refunded_changed = true
end

function ranges.write(state, apart)
  if not is_refunded_changed then return end
  if not refunded then
    call('DEL', apart)
    return
  end
  local life = 0
  for t = 1, #state.known do life = max(life, state.known[t].quota.life) end
  call('SET', apart, refunded, 'PX', format('%.0f', (life + 2 * SLICE) / MILLISECOND))
end

-- include: counters_refund
-- include: refund_end
