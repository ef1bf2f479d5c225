-- The beginning of a script that decides takes.
--
-- Gives  now, by the server's clock; clock: the server's answer, or false
--        question; kind: the kind of the call

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local keys, given = KEYS, ARGV
local clock = not given[2] and call('TIME')
local now = clock and clock[1] * 1000000 + clock[2] or given[2] + 0
local question = given[1]
local kind = string.byte(question)
