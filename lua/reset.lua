-- Forgets what counts under one key of a store.
--
-- KEYS[1]  the count
-- KEYS[2]  what was given back of it
-- ARGV[1]  the algorithm's name
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: 1 if anything was counted, 0 if nothing was
--
-- Takes that were charged at `now` or before are not given back any more. A count that is new does
-- not know that, and a log finds the units of a take by their millisecond. So an empty count takes
-- the place of what was counted, for EXPIRY: the algorithm's script reads in it since when takes
-- are given back, and the next charge goes on with that.
--
-- The stamp of a receipt says whether it is from before. If the clock steps back, an earlier receipt
-- that is stamped after `now` is taken for a later one, and takes that are charged until the clock
-- has passed `now` again are not given back.

local call, pack = redis.call, struct.pack
-- In milliseconds: much longer than the millisecond in which it matters.
local EXPIRY = 2000
-- The shortest window, in microseconds.
local MIN_WINDOW = 1000

local clock = ARGV[2] and { 0, ARGV[2] } or call('TIME')
local now = clock[1] * 1000000 + clock[2]
local since = now + 1

local was_counted = call('DEL', KEYS[1])
call('DEL', KEYS[2])
if was_counted == 0 then return 0 end

if ARGV[1] == 'sliding-log' then
  -- See `sliding_log`: the newest entry. No window is so short: nothing counts in it.
  local entry = pack('>BI7I7I7I7I7I7I7I7I7I7I7I7', 247, 0, 0, 0, now, now, 0, 0, 0, 0, 0, 0, since)
  call('ZADD', KEYS[1], string.format('%.0f', now), entry)
  call('PEXPIRE', KEYS[1], EXPIRY)
  return 1
end

-- See `tallies`: a tally of a quota of no units.
local header, state = '>BI7I7', nil
if ARGV[1] == 'sliding-window' then
  state = pack(header .. 'I7I7I7I7I7I7I2', 248, 0, now, 0, MIN_WINDOW, now, since, MIN_WINDOW, 0, 0)
elseif ARGV[1] == 'gcra' then
  state = pack(header .. 'I7I7I7I7I7I7I7', 249, 0, now, 0, MIN_WINDOW, 0, now, since, now, 0)
else
  state = pack(header .. 'I7I7I7I7I7I7', 250, 0, now, 0, MIN_WINDOW, now, since, now, 0)
end
call('SET', KEYS[1], state, 'PX', EXPIRY)
return 1
