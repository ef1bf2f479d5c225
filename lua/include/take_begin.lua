-- The beginning of a script that decides takes.
--
-- Gives  now, by the server's clock; clock: the server's answer, or false
--        question; kind: the kind of the call; id: the call's, 8 bytes

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local keys, given = KEYS, ARGV
local clock = not given[3] and call('TIME')
local now = clock and clock[1] * 1000000 + clock[2] or given[3] + 0
local question, id = given[1], given[2]
local kind = string.byte(question)
