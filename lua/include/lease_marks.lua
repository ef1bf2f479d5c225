-- How much longer than its window a unit of a key counts: a unit that a rule with a lease charged
-- may be used later than it was charged. Until the last of these units has ceased to count, units
-- count longer for every taker, also for one whose rule has no lease.
--
-- A state that was charged so has a mark behind its header: the longest lease, when something was
-- charged under a lease last, and how long that counts. Loaded, it is the state's `mark`, with the
-- fields lease, stamp, life; longer_by says how much longer units count, and `quotas` has the
-- rule's quotas with windows that are as much longer.
--
-- It uses this function of the algorithm:
--   longer_quota(quota, by): the same quota with a window that is longer by so many microseconds

-- Reads the mark behind a header. One that cannot be is as good as none.
local function read_mark(state, raw)
  if #raw < HEADER_SIZE + LEASE_SIZE then return end
  local lease, stamp, life = unpack(LEASE, raw, HEADER_SIZE + 1)
  if life <= TEN_YEARS then state.mark = { lease = lease, stamp = stamp, life = life } end
end

-- Whether the mark still says something.
local function is_marked(state)
  return state.mark and now < state.mark.stamp + state.mark.life
end

-- Makes the windows of a state as long as its units count.
local function lengthen(state)
  local rule, by = state.rule, state.rule.lease
  if is_marked(state) then by = max(by, state.mark.lease) end
  state.longer_by, state.quotas = by, nil
  if by == 0 then return end
  rule.longer = rule.longer or {}
  local quotas = rule.longer[by] or {}
  for n = 1, rule.charged do quotas[n] = quotas[n] or longer_quota(rule[n], by) end
  rule.longer[by], state.quotas = quotas, quotas
end

-- The mark behind a charge, as it is written; nil or false if there is none.
local function write_mark(state)
  local rule, mark, is_kept = state.rule, state.mark, is_marked(state)
  if rule.lease > 0 then
    local life = is_kept and mark.life or 0
    for n = 1, rule.charged do life = max(life, state.quotas[n].life) end
    return pack(LEASE, state.longer_by, now, life)
  end
  -- Units that were charged in the future count as charged now.
  return is_kept and mark.life > 0 and pack(LEASE, mark.lease, min(mark.stamp, now), mark.life)
end
