-- Gives back what takes were charged by the generic cell rate algorithm.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. Each count is a string: see
-- include/tallies.lua and include/gcra_tally.lua. What was given back stands apart: `since` is the
-- instant since which all tallies can tell takes apart, and with another one it is void.

-- include: setup
-- include: drain
-- include: gcra_tally
-- include: refund_begin
-- include: given_back
-- include: give_back

local MAX_RUNS = 4
-- What was given back of the count in hand (nil if nothing was), and whether a refund changed that.
local given_back, is_given_back_changed
-- The most units that were charged after the take and not given back since; of each tally the same.
local charged_later

-- Units of which at least a part has drained since then.
local function touched(tally, instant)
  local gone, rest = drained(math.max(now - instant, 0), tally)
  return rest and gone + 1 or gone
end

-- First in, first out: the units of the take that have not begun to drain. Those are no fewer than
-- what is left if all that drained since then was the take's.
local function refund_tally(tally)
  local whole = tally.units - touched(tally, tally.start)
  local left = math.max(whole - charged_later, receipt_units - touched(tally, receipt_stamp))
  local taken = math.max(math.min(most, left, whole), 0)
  tally.units = tally.units - taken
  return taken
end

local function since_of(tallies)
  local since = 0
  for t = 1, #tallies do since = math.max(since, tallies[t].refundable_since) end
  return since
end

local runs = {}

function runs.read(tallies, serial, apart)
  given_back, is_given_back_changed = pcall('GET', apart), false
  if is_given_back(given_back) then
    local _, since = unpack(RUNS_HEAD, given_back)
    if since ~= since_of(tallies) or runs_end(given_back) > serial then given_back = nil end
  else
    given_back = nil
  end
end

function runs.before(serial)
  charged_later = (serial - receipt_serial) % MODULUS
  if given_back then
    charged_later = math.max(charged_later - units_from(given_back, receipt_serial), 0)
  end
end

function runs.after(tallies, serial, last_charge, refunded)
  local first = receipt_serial - receipt_units
  -- Where that instant is after the last charge, the serial numbers may run from zero again then.
  local since = since_of(tallies)
  if first < 0 or receipt_serial > serial or since > last_charge then return end
  local held = 0
  for t = 1, #tallies do held = math.max(held, used_now(tallies[t], last_charge)) end
  given_back = give_back(given_back, since, first, refunded, serial, held, MAX_RUNS)
  -- They end behind the last unit if a receipt was given back twice.
  if given_back and runs_end(given_back) > serial then given_back = nil end
  is_given_back_changed = true
end

function runs.write(tallies, apart)
  if not is_given_back_changed then return end
  if not given_back then
    call('DEL', apart)
    return
  end
  local life = 0
  for t = 1, #tallies do life = math.max(life, tallies[t].life) end
  call('SET', apart, given_back, 'PX', format('%.0f', (life + 2 * SLICE) / MILLISECOND))
end

-- include: refund_tallies
-- include: refund_end
