-- The core: answers the takes of a call that the usual case did not. Each rule is read once and
-- each key is loaded once; then all takes are decided, and each key that was charged is written
-- once, at the end. A take names one count, or several that are charged all, or not at all.
--
-- A rule has: its quotas in its array part, each with its limit; quotas: how many they are, or 0
-- if it is of permits, or CALENDAR; expiry, slice: see formats.md; this_slice: the number of the
-- slice of now; behind: where the question continues after it; other: the functions of its states, if
-- they are not the algorithm's. A state is what stands under a key. It has: rule, is_changed;
-- perhaps error; perhaps held_for: for how many microseconds more the key is held; and for each
-- quota n own[n].used, the units that count now. The core, whose function `core_begin` opens, uses
-- these functions of the algorithm:
--   read_quota(from) -> quota, behind
--   load(key, rule, raw) -> state     `raw` is the string under the key, or nil
--   prepare(state)                    before the first charge of a call
--   charge(state, units)
--   wait(counter, limit, cost)        microseconds until a cost fits that does not fit now
--   ends_at(counter)                  when nothing of it counts any more
--   write(state, key) -> error        nil if all went well
--   counter_units(state), or nil      what the reply says of several takes that were charged alike
-- A rule of another kind of state has its own load, fits, answers and write: see `permits` and
-- `calendar`. If it says is_outside, nothing of a take over it is charged.
--
-- A function costs a call as much as a small command if it uses many locals from outside. So
-- constants are text, and functions that few calls need are made by another one. A table costs by
-- the number of its fields, rounded up to 4, 8 or 16: its constructor has the usual ones, and
-- others are set where they are needed, since one more, even nil, makes it grow.

-- include: permits
-- include: calendar
local function read_rule(from)
  local kind_or_quotas, expiry, slice, at = unpack(RULE_HEAD, question, from)
  local quota
  if kind_or_quotas > 0 and kind_or_quotas < CALENDAR then quota, at = read_quota(at) end
  local rule = { quota, quotas = kind_or_quotas, expiry = expiry, slice = slice,
    behind = at, expiry_text = false, this_slice = floor(now / slice) }
  for n = 2, kind_or_quotas < CALENDAR and kind_or_quotas or 0 do
    rule[n], at = read_quota(at)
  end
  rule.behind, rules[from] = at, rule
  if kind_or_quotas == 0 then
    permits = permits or permit_functions()
    rule.other = permits
  elseif kind_or_quotas == CALENDAR then
    calendars = calendars or calendar_functions()
    rule.other = calendars
  end
  return rule
end

-- Writes a state that was charged, and notes what went wrong.
local function write_state(state, key)
  local other = state.rule.other
  local error_text = (other and other.write or write)(state, key)
  if error_text then state.error = error_text end
  state.is_changed = false
end

-- The state of a key under a rule. Two rules may take turns on one key.
local function state_of(key, rule, raw)
  local before = states and states[key]
  if before then
    if before.rule == rule then return before end
    if before.is_changed then write_state(before, key) end
    raw = nil
  end
  local state = (rule.other and rule.other.load or load)(key, rule, raw)
  if states then states[key] = state end
  return state
end

-- How many takes of a cost fit under all quotas, as if each came alone.
local function fits(state, cost, takes)
  local rule, own = state.rule, state.own
  if state.held_for then return 0 end
  for n = 1, rule.quotas do
    local limit = rule[n].limit
    local room = limit - own[n].used
    if cost > room or limit == 0 then return 0 end
    if cost * takes > room then takes = floor(room / cost) end
  end
  return takes
end

-- The answer to takes that have one answer, with the state of each quota after them.
local function answer(state, verdict, alike, number)
  local rule, own, text = state.rule, state.own, nil
  for n = 1, rule.quotas do
    local limit, counter, reset = rule[n].limit, own[n], 0
    local used = counter.used
    local left = used < limit and limit - used or 0
    if used > 0 and limit > 0 then reset = max(ends_at(counter) - now, 0) end
    text = text and text .. pack(NEXT_QUOTA, left, reset)
      or pack(ANSWER, verdict, alike, number, left, reset)
  end
  return text
end

-- Charges so many units of a count, once it is known that they fit.
local function spend(state, units)
  if units == 0 then return end
  if not state.is_changed then
    prepare(state)
    state.is_changed = true
  end
  charge(state, units)
end

-- Charges the takes of a row that fit, and answers all.
local function answers(state, cost, takes, fitting)
  local text = ''
  if fitting > 0 then
    spend(state, cost * fitting)
    text = answer(state, state.allowed or ALLOWED, fitting, cost > 0 and state.serial or 0)
    if counter_units and fitting > 1 and cost > 0 then text = text .. counter_units(state) end
  end
  if fitting == takes then return text end
  local rule, own, verdict, number = state.rule, state.own, DENIED, 0
  for n = 1, rule.quotas do
    local limit = rule[n].limit
    if cost > limit or limit == 0 then
      verdict, number = NEVER, 0
      break
    end
    if cost > limit - own[n].used then number = max(number, wait(own[n], limit, cost)) end
  end
  local held_for = state.held_for
  if verdict == DENIED and held_for then
    if held_for > number then verdict, number = ON_HOLD, held_for else verdict = DENIED_ON_HOLD end
  end
  return text .. answer(state, verdict, takes - fitting, number)
end

-- Charges these units up to the limit with debt of each quota, and returns how many were charged.
local function owe(state, units)
  local rule, at, limit_with_debt = state.rule, state.rule.behind, nil
  for n = 1, rule.quotas do
    limit_with_debt, at = unpack('>I7', question, at)
    units = max(min(units, limit_with_debt - state.own[n].used), 0)
  end
  spend(state, units)
  -- A bucket above its burst drains for longer than a full one: its key gets a longer expiry.
  state.sets_expiry = true
  return answer(state, ALLOWED, 1, units)
end

-- Answers the takes of a row, whose counts are those from place `first` to `last`: they are charged
-- to all of them, or to none, unless the server refuses to write one of the keys in the end.
local function answer_row(first, last, takes, is_late, owes)
  local fitting, refused = takes, is_late and LATE
  for place = first, is_late and 0 or last do
    local state = counts[place]
    local fits = state.rule.other and state.rule.other.fits or fits
    fitting = fits(state, costs[place], fitting)
    if state.rule.is_outside then refused = OUTSIDE end
  end
  for place = first, last do
    local state, cost, text = counts[place], costs[place], nil
    if refused then
      text = pack(SHORT_ANSWER, refused, takes)
    elseif state.rule.other then
      text = state.rule.other.answers(state, cost, takes, fitting, owes)
    elseif owes then
      text = owe(state, cost)
    else
      text = answers(state, cost, takes, fitting)
    end
    replies[place + 1] = replies[place + 1] and replies[place + 1] .. text or text
  end
end

-- The next record, and the next row behind the first one of its key.
local places = #KEYS
local at = unpack('>I2', question, 2)
local first, further, records, has_failed = 1, at + places * RECORD_SIZE, at, false
while first <= places do
  local from, rows_or_kind, takes, cost, deadline, behind = unpack(RECORD, question, at)
  local rows, last, owes, error_text = rows_or_kind, first, rows_or_kind == OWED + 1, nil
  if rows_or_kind >= JOINT then last = first + rows_or_kind - JOINT - 1 end
  if rows > OWED then rows = 1 end
  -- The usual case has answered it.
  if replies[first + 1] then rows = 0 end
  for place = first, rows > 0 and last or 0 do
    if place > first then from, _, _, cost, _, behind = unpack(RECORD, question, behind) end
    local state = state_of(KEYS[place], rules[from] or read_rule(from), values and values[place])
    counts[place], costs[place], error_text = state, cost, error_text or state.error
    local known = holds and holds[place]
    if known then
      local held_for = (tonumber(string.match(known, '^%d+')) or 0) - now
      local ends = tonumber(string.match(known, '^%d+ (%d+) '))
      if held_for > 0 and held_for <= TEN_YEARS then state.held_for = held_for end
      -- A success would end failures, or steps: see lockout.lua.
      if ends and ends > now and string.sub(known, -2) ~= ' 0' then
        state.allowed = ALLOWED_AFTER_FAILURES
      end
    end
  end
  for row = 1, rows do
    if row > 1 then takes, costs[first], deadline, further = unpack(ROW, question, further) end
    if not error_text then answer_row(first, last, takes, now > deadline, owes) end
  end
  at, first = behind, last + 1
end

for place = 1, places do
  local state = counts[place]
  if state and state.is_changed then write_state(state, KEYS[place]) end
  has_failed = has_failed or state and state.error
end
-- If something is wrong with a count, all takes over it are answered with that error.
first = 1
while has_failed and first <= places do
  local last, error_text = first, nil
  local _, rows_or_kind = unpack(RECORD, question, records + (first - 1) * RECORD_SIZE)
  if rows_or_kind >= JOINT then last = first + rows_or_kind - JOINT - 1 end
  for place = first, last do error_text = error_text or counts[place] and counts[place].error end
  if error_text then
    -- This error is not about a key: the server is no master. Nothing was written, and the whole
    -- call fails, so that the connection looks for the master.
    if string.find(error_text, 'READONLY', 1, true) then return redis.error_reply(error_text) end
    error_text = string.sub(error_text, 1, 1024)
    local answer = pack(SHORT_ANSWER, ERROR, #error_text) .. error_text
    for place = first, last do replies[place + 1] = answer end
  end
  first = last + 1
end
return concat(replies)
end
return core()
