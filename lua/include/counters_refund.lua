-- Gives back what was charged to the counters of a key: see `refund_begin`, which says what it uses
-- and gives.
--
-- Uses   what `counters` gives
--        refund_counter(counter) -> units given back
--        ranges: nil, or the functions that keep what was given back apart:
--          read(state, apart); before(state), before each refund; after(state, units), after each
--          that gives something back; write(state, apart)
-- Gives  refund_all

-- The counters of the key before: those of many keys of a call are of the same quotas.
local before = {}

local function load()
  local state = { serial = 0, stamp = now, known = false, rule = {} }
  local raw = call('GET', key)
  for t = 1, #before do state.rule[t] = before[t].quota end
  if raw then read_counters(state, raw) end
  before = state.known or before
  if state.stamp > now then state.known = false end
  return state
end

local function refund_all(number, apart)
  local state, is_changed, back = load(), false, {}
  local known, counters = state.known, state.known or {}
  if known and ranges then ranges.read(state, apart) end
  for _ = 1, number do
    next_receipt()
    local units = 0
    if known and ranges then ranges.before(state) end
    for t = 1, #counters do
      local counter = counters[t]
      local is_own = receipt_windows[counter.quota.window]
        and receipt_stamp >= counter.refundable_since
      back[t] = is_own and refund_counter(counter)
      units = max(units, back[t] or 0)
    end
    if units > 0 then
      is_changed = true
      if ranges then
        -- They note the most that a counter gave back. One that gave back less has drained all
        -- takes before this one; with a later max it might not know that any more.
        for t = 1, #counters do
          if (back[t] or units) < units then counters[t].refundable_since = receipt_stamp end
        end
        ranges.after(state, units)
      end
    end
    replies[#replies + 1] = units
  end
  if is_changed then
    call('SET', key, state_text(state, counters), 'KEEPTTL')
    if ranges then ranges.write(state, apart) end
  end
end
