-- Counts a failure of a take that was admitted, and holds the key after so many: its takes are
-- denied until then. Or notes a success, which ends failures and steps, but no hold. It may be
-- asked again: a failure counts once.
--
-- KEYS[1]  what is known: a string of numbers, `held_until ends since step`, and ` reported:id` of
--          each failure that counts, or ` reported;id` of one that counts no more, behind a hold or
--          a success, but may be reported again. The key is held until `held_until`; the whole
--          string is void from `ends` on; takes that were admitted before `since` count nothing,
--          unless they fail after more than SLOW_REQUEST; `step` is how many times in a row the key
--          was held. Behind an id stands `s` if its take was admitted before `since`, and `=step` if
--          it has begun a hold. The string ends in ` 0` where a success would end nothing.
-- ARGV[1]  when the take was admitted, in microseconds by the server's clock
-- ARGV[2]  the id of the failure; 0 for a success; `?` and `left` only ask
-- ARGV[3]  how many failures hold the key
-- ARGV[4]  within how many microseconds these failures have to be reported
-- ARGV[5]  for how many microseconds it is held each time, with spaces between them; the last one
--          counts for all further times
-- ARGV[6]  for how many microseconds behind the last hold its step is remembered
-- ARGV[7]  how many microseconds ago the failure was told first
-- ARGV[8]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: of a failure that has begun a hold, how many times in a row the key was held; the same if
-- asked by `?`, and the key is held; 0 otherwise. Asked by `left`, after how many more failures the
-- key is held, 1 or more; 0 if it is

-- In milliseconds: what has ended does no harm.
local SLACK = 2000

local clock = ARGV[8] and { 0, ARGV[8] } or redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local admitted, id, within, memory = math.min(ARGV[1] + 0, now), ARGV[2], ARGV[4] + 0, ARGV[6] + 0

-- A value of another form, or of another type, tells nothing.
local text = redis.pcall('GET', KEYS[1])
local held_until, ends, since, step, known =
  string.match(type(text) == 'string' and text or '', '^(%d+) (%d+) (%d+) (%d+)(.*)$')
held_until, ends = (held_until or 0) + 0, (ends or 0) + 0
since, step = (since or 0) + 0, (step or 0) + 0
if ends <= now then held_until, since, step, known = 0, 0, 0, '' end
-- The clock went back: nothing is written with a later `since`.
if held_until - now > TEN_YEARS then held_until = 0 end
if since > now + 1 then since = 0 end
if now > held_until + memory then step = 0 end
if id == '?' then return held_until > now and step or 0 end

local is_new = admitted >= since
if id == '0' and is_new then since, step = admitted + 1, 0 end
local counted, number, failures = 0, 0, ''
for reported, mark, one, slow, begun in
  string.gmatch(known or '', '(%d+)([:;])(%d+)(s?)(=?%d*)') do
  -- It was reported before. The step of a hold that it has begun is returned again.
  if one == id then return held_until > now and tonumber(string.sub(begun, 2)) or 0 end
  local at = reported + 0
  if at > now - within and at < now + within then
    if at < since then mark = ';' end
    if mark == ':' then counted = counted + 1 end
    number, failures = number + 1, failures .. ' ' .. reported .. mark .. one .. slow .. begun
  end
end
if id == 'left' then return held_until > now and 0 or math.max(1, ARGV[3] - counted) end
-- A request whose end its client kept back is a guess behind the hold, and not beside it.
local is_slow = id ~= '0' and now - admitted > SLOW_REQUEST + ARGV[7]
if not is_new and not is_slow then return 0 end

local begun = 0
if id ~= '0' then
  -- The oldest slow one goes.
  if number >= ARGV[3] + MAX_REPEATED then
    local left, gone = string.gsub(failures, ' %d+;%d+s=?%d*', '', 1)
    failures = gone > 0 and left or string.gsub(failures, ' %d+;[%d=]+', '', 1)
  end
  -- In the instant of a hold, that of a slow request counts for the next one.
  failures = failures .. string.format(' %.0f:%s', math.max(now, since), id)
    .. (is_new and '' or 's')
  counted = counted + 1
  if counted >= ARGV[3] + 0 then
    local times = {}
    for time in string.gmatch(ARGV[5], '%d+') do times[#times + 1] = time end
    begun, step, since = step + 1, step + 1, now + 1
    held_until = math.max(held_until, now + times[math.min(step, #times)])
    failures = string.gsub(failures, ':', ';') .. string.format('=%d', step)
  end
end
local tail = step == 0 and counted == 0 and ' 0' or ''
ends = math.max(now + within, held_until + (step > 0 and memory or 0))
redis.call('SET', KEYS[1], string.format('%.0f %.0f %.0f %d', held_until, ends, since, step)
  .. failures .. tail, 'PX', string.format('%.0f', math.ceil((ends - now) / 1000) + SLACK))
return begun
