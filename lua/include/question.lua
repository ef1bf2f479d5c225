-- The beginning of the scripts that keep a tally for each quota: the clock, and what is stored.
--
-- A state is the mark of its algorithm, and then, as big-endian integers of 7 bytes,
--   serial   units ever charged, modulo 2^52: tells takes of one instant apart
--   newest   when something was charged last
-- and the tallies: those of the rule's quotas, and those of earlier quotas for as long as what was
-- charged under them still counts. Each charge goes to all of them. What all tallies have:
--   max, window   the quota that it was charged under last
--   until         until when it is needed for what was charged while that was the rule's
--   begun         takes that were charged before this are not told apart in it, and not given back
--
-- Uses   KEYS and ARGV
-- Gives  question, now, raw: what GET says; is_broken(); MODULUS, MOST_UNITS, SLICE, TEN_YEARS, HEADER,
--        HEADER_SIZE; and key, call, pack, unpack, floor: locals are quicker than globals

local key, call, pack, unpack = KEYS[1], redis.call, struct.pack, struct.unpack
local floor = math.floor
local MODULUS = 4503599627370496
local MOST_UNITS = 2251799813685248
-- The expiry is set once in each slice of time, about a second, so it has to last two slices more.
local SLICE = 1048576
local HEADER, HEADER_SIZE = '>BI7I7', 15
local TEN_YEARS = 315360000000000

local question = ARGV[1]
local now = ARGV[3]
if now then
  now = now + 0
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local raw = redis.pcall('GET', key)

-- Whether a tally says what cannot be: then the state is not ours, or damaged, and is started afresh.
local function is_broken(window, needed, start)
  local _, _, newest = unpack(HEADER, raw)
  return window == 0 or window > TEN_YEARS or needed > newest + 2 * TEN_YEARS or start > newest
end
