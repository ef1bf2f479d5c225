-- Forgets what counts under one key of a store, whichever algorithm wrote it.
--
-- KEYS[1]  the count: a string, or a sorted set
-- KEYS[2]  what was given back of it
-- KEYS[3]  its hold, which only rules obey whose keys may be held: see hold.lua and lockout.lua
-- ARGV[1]  for how many microseconds it is remembered that what was admitted before counts nothing;
--          0 if no failures count
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: 1 if a count or a hold was found, 0 for nothing, the mark of an earlier reset, and any
-- other value
--
-- Takes that were charged at `now` or before are not given back any more. A count that is new does
-- not know that, and a log finds the units of a take by their millisecond. So a mark takes the
-- place of the count, for EXPIRY: the algorithm's script reads in it since when takes are given
-- back (see include/counters.lua and include/sliding_log.lua), and the next charge goes on with
-- that. The mark is a byte that no count begins with, and an instant, a big-endian integer of 7
-- bytes.
--
-- The stamp of a receipt says whether it is from before. If the clock steps back, an earlier
-- receipt that is stamped after `now` is taken for a later one, and takes that are charged until
-- the clock has passed `now` again are not given back.

local call = redis.call
-- In milliseconds: much longer than the millisecond in which it matters.
local EXPIRY = 2000
-- The bytes that counts begin with are MIN_MARK and those above: no text begins with them.

local clock = ARGV[2] and { 0, ARGV[2] } or call('TIME')
local now = clock[1] * 1000000 + clock[2]

local text, member = redis.pcall('GET', KEYS[1]), nil
if type(text) == 'table' then
  text, member = nil, redis.pcall('ZRANGE', KEYS[1], '-1', '-1')[1]
end
local hold = redis.pcall('GET', KEYS[3])
hold = type(hold) == 'string' and hold or ''
local ends = string.match(hold, '^%d+ (%d+) ')
local was_held = (tonumber(string.match(hold, '^%d+')) or 0) > now
  or ends and ends + 0 > now and string.sub(hold, -2) ~= ' 0'

-- A value that no algorithm wrote leaves no mark: it has no receipts, and may be of another type.
local first_byte = string.byte(text or member or '') or 0
local is_written = first_byte >= MIN_MARK
local mark = struct.pack('>BI7', RESET_MARK, now + 1)
-- A user who may set no expiry is refused before anything has changed.
if is_written and member then call('PEXPIRE', KEYS[1], EXPIRY) end
call('DEL', KEYS[1], KEYS[2], KEYS[3])
local within = ARGV[1] + 0
if within > 0 then
  call('SET', KEYS[3], string.format('0 %.0f %.0f 0', now + within, now + 1), 'PX',
    string.format('%.0f', math.ceil(within / 1000) + EXPIRY))
end
if is_written and member then
  call('ZADD', KEYS[1], string.format('%.0f', now), mark)
  call('PEXPIRE', KEYS[1], EXPIRY)
elseif is_written then
  call('SET', KEYS[1], mark, 'PX', EXPIRY)
end
return (is_written and first_byte ~= RESET_MARK or was_held) and 1 or 0
