-- What the general parts of takes, and refunds, have in common. Scripts have few functions, and
-- none is made for each key: making one takes longer than running it, and the longer the more outer
-- locals it uses.
--
-- Gives  the locals below

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, ceil, concat = math.floor, math.ceil, table.concat
local sub, byte, format = string.sub, string.byte, string.format
-- Running totals and serial numbers are modulo 2^52, so that doubles hold the sum of any two.
local MODULUS = 4503599627370496
local TEN_YEARS = 315576000000000
local MILLISECOND = 1000
-- The expiry is set once in each slice of time, so it has to last two slices more. The shortest
-- slice is about a second.
local SLICE = 1048576
-- The first byte of a count says what wrote it. No text begins with one of these.
local LOG_MARK, WINDOW_MARK, GCRA_MARK, FIXED_MARK = 247, 248, 249, 250
local RESET_MARK, LEASED_WINDOW_MARK, REFUNDED_MARK = 251, 252, 253
-- What `reset` leaves in the place of a count: its mark, and since when takes are given back.
local RESET, RESET_SIZE = '>BI7', 8
-- What stands behind the header of a state that a rule with a lease charged: see `longer`.
local LEASE, LEASE_SIZE = '>I7I7I7', 21

-- What the question says of each quota of a key, the most units that may be used under it, and the
-- units that count.
local quotas, limits, used = { false }, { 0 }, { 0 }

local key
