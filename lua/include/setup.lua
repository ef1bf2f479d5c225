-- What the general parts of takes, and refunds, have in common. Scripts have few functions, and
-- none is made for each key: making one takes longer than running it, and the longer the more outer
-- locals it uses.
--
-- Gives  the locals below

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, ceil, concat = math.floor, math.ceil, table.concat
local sub, byte, format = string.sub, string.byte, string.format

-- What the question says of each quota of a key, the most units that may be used under it, and the
-- units that count.
local quotas, limits, used = { false }, { 0 }, { 0 }

local key
