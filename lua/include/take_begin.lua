-- The beginning of a script that decides takes.
--
-- Gives  now, by the server's clock; clock: the server's answer, or false
--        question; kind: the kind of the call; at: where the records begin

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, format = math.floor, string.format

local clock = not ARGV[3] and call('TIME')
local now = clock and clock[1] * 1000000 + clock[2] or ARGV[3] + 0
local question, keys = ARGV[1], KEYS
local kind, at = unpack('>BI2', question)
