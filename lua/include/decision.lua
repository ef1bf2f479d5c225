-- The rest of the scripts that keep a tally for each quota: the state is read, the takes are decided and
-- charged, the state is written, and the script returns.
--
-- Uses   what `question` gives, and of the algorithm:
--
--   MARK                        the first byte of a state
--   read()                      raw -> list of tallies, or nil if it is broken
--   ask(at) -> quota, at        a quota of the question, and where the next one begins
--   limit(quota)                the most units that may be used
--   matches(tally, quota)       whether it can go on as the tally of this quota
--   fresh(quota)                an empty tally
--   life(tally)                 how long a charge counts at most
--   used(tally)                 units that count now
--   counts(tally, newest)       what has to be charged to another tally at the last charge for that to count
--                               there, too
--   wait(tally, limit, cost)    microseconds until so many units fit, where they do not
--   over_at(tally)              from when on nothing of it counts
--   charge(tally, time, units)  how many of them it could not hold
--   hold(tally, time, units)    what another algorithm counted, in full for as long as it is needed
--   back(tally, newest)         what was charged in the future counts as charged now
--   write(tally)
--
-- A quota and a tally are lists that begin with max, window, burst; a tally goes on with until and begun. All
-- times are in microseconds.
--
-- Gives  the reply of the script

local serial, newest = 0, now
local tallies, changed, live, pulled, latest_begun = {}, true, false, false, 0
if raw then
  local carried
  if type(raw) == 'string' and string.byte(raw) == MARK then
    local read_tallies = #raw > HEADER_SIZE and read()
    if read_tallies then
      local _
      _, serial, newest = unpack(HEADER, raw)
      tallies, changed = read_tallies, false
    end
  else
-- include: carried
    if not carried then return redis.error_reply('WRONGTYPE the key holds something that is not a limiter') end
    serial, newest = carried.serial or 0, carried.newest or now
    if carried[1] then
      pulled = carried.pulled
      -- Under each quota counts what counts under the fullest: what is known of the others may have been
      -- forgotten by an algorithm that does not look back as far.
      for _, quota in ipairs(carried) do
        local known, tally = false, fresh(quota)
        for _, other in ipairs(tallies) do known = known or matches(other, tally) end
        if not known then
          hold(tally, newest, carried[1][4])
          tally[4], tally[5] = newest + life(tally), carried.begun
          tallies[#tallies + 1] = tally
        end
      end
    end
  end
  if now < newest then
    for _, tally in ipairs(tallies) do
      back(tally, newest)
      local most = now + life(tally)
      if tally[4] > most then tally[4] = most end
      if tally[5] <= newest then tally[5] = newest + 1 end
    end
    newest, pulled = now, true
  end
  for at = 1, #tallies do
    local tally = tallies[at]
    live = live or (tally[4] > now and used(tally) > 0)
    if tally[5] > latest_begun then latest_begun = tally[5] end
  end
end

-- The rule's quotas, each as { tally, limit, used, quota }, and their tallies, each once.
local asks, own = {}, {}
local quotas, at = string.byte(question), 2
for number = 1, quotas do
  local quota, found
  quota, at = ask(at)
  for place = 1, #own do
    if matches(own[place], quota) then found = own[place] end
  end
  if not found and live then
    for place = 1, #tallies do
      if matches(tallies[place], quota) then found = tallies[place] end
    end
  end
  if not found then
    found, changed = fresh(quota), true
    if live then
      -- What counts under any other quota counts here, too.
      local most = 0
      for _, tally in ipairs(tallies) do
        local units = counts(tally, newest)
        if tally[4] > now and units > most then most = units end
      end
      if most > 0 then charge(found, newest, most) end
    end
  end
  local new = true
  for place = 1, #own do new = new and own[place] ~= found end
  if new then own[#own + 1] = found end
  asks[number] = { found, limit(quota), used(found), quota }
end

local deadline
deadline, at = unpack('<I7', question, at)
if now > deadline then return now end

local charged = false
local reply, replies
local cost, left = 0, 0
repeat
  -- So many takes of this cost are to be answered; those that are answered alike are answered at once.
  if left == 0 then cost, left, at = unpack('<I7I2', question, at) end
  local answers = left

  local verdict, retry = 1, 0
  if cost > 0 then
    for number = 1, quotas do
      local asked = asks[number]
      local most = asked[2]
      if cost > most then
        verdict, retry = 2, 0
        break
      elseif asked[3] + cost > most then
        verdict = 0
        local longest = wait(asked[1], most, cost)
        if longest > retry then retry = longest end
      else
        local fits = floor((most - asked[3]) / cost)
        if fits < answers then answers = fits end
      end
    end
    if verdict ~= 1 then answers = left end
  end
  left = left - answers

  if verdict == 1 and cost > 0 then
    if not charged then
      charged = true
      -- The serial numbers run from zero again, unless a take with such a number may have the same stamp: one
      -- of this very instant, or one from before the clock went back.
      if not live and latest_begun <= now and newest ~= now then serial = 0 end
      local begun = latest_begun > now and latest_begun or now
      for number = 1, quotas do
        local tally, quota = asks[number][1], asks[number][4]
        if tally[1] ~= quota[1] or tally[3] ~= quota[3] then
          tally[1], tally[3], changed = quota[1], quota[3], true
        end
        tally[4] = now + life(tally)
        if not live or tally[5] == 0 then tally[5] = begun end
      end
      if live and #tallies > 1 or changed and live then
-- include: earlier
      else
        tallies = own
      end
    end
    for place = 1, #tallies do
      local tally = tallies[place]
      if charge(tally, now, cost * answers) > 0 and tally[5] <= now then tally[5] = now + 1 end
    end
    for number = 1, quotas do asks[number][3] = asks[number][3] + cost * answers end
    serial = (serial + cost * answers) % MODULUS
    retry = serial
  end

  local answer
  for number = 1, quotas do
    local asked = asks[number]
    local remaining, reset = asked[2] - asked[3], 0
    if remaining < 0 then remaining = 0 end
    if asked[3] > 0 and asked[2] > 0 then
      reset = over_at(asked[1]) - now
      if reset < 0 then reset = 0 end
    end
    if answer then
      answer = answer .. pack('<I8I8', remaining, reset)
    else
      answer = pack('<I8I8I8I8I8', now, verdict + 4 * answers + deadline % 1048576 * 2048, retry, remaining, reset)
    end
    if MARK == 249 and verdict == 1 and cost > 0 and answers > 1 then
      answer = answer .. pack('<I8', asked[1][7])
    end
  end
  if reply then
    replies = replies or { reply }
    replies[#replies + 1] = answer
  else
    reply = answer
  end
until left == 0 and at > #question

if charged or pulled then
  local before = newest
  if charged then newest = now end
  local state = pack(HEADER, MARK, serial, newest)
  for place = 1, #tallies do state = state .. write(tallies[place]) end
  if changed or before - before % SLICE ~= now - now % SLICE then
    local expiry = ARGV[2]
    for place = 1, #tallies do
      local needed = (tallies[place][4] - now + 2 * SLICE) / 1000
      if needed > expiry + 0 then expiry = string.format('%.0f', needed) end
    end
    call('SET', key, state, 'PX', expiry)
  else
    call('SET', key, state, 'KEEPTTL')
  end
end

return replies and table.concat(replies) or reply
