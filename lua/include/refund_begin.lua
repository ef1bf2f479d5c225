-- The beginning of refunds: each gives back what a take was charged.
--
-- KEYS     for each count two keys of one slot: the count, as the algorithm's script keeps it, and
--          what was given back, where the algorithm keeps that apart: see include/refunded_ranges.lua
-- ARGV[1]  for each count the number of its refunds, a big-endian integer of 2 bytes, and their
--          receipts: stamp, serial number and units of the take, the most units to give back, and
--          how many windows follow, in 1 byte: those of the take's quotas, where each has a
--          counter; big-endian integers of 7 bytes. Behind the number stands, in 4 bytes, how many
--          bytes the receipts are
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: for each refund the units that were given back, 0 if the take counts no longer; or an
--        error, for all refunds of a count
--
-- The refunds of a count are answered in order, as if each had come alone; the count is read and
-- written once. Nothing says here whether a take was given back before: its owner asks
-- once.
--
-- Gives  the locals below: key is the count in hand; `next_receipt` reads the next refund into
--        receipt_stamp, receipt_serial, receipt_units; max_units, the most units to give back; and
--        receipt_windows, a set

local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, ceil, concat, max, min = math.floor, math.ceil, table.concat, math.max, math.min
local sub, byte, format = string.sub, string.byte, string.format

local key
local now = ARGV[2] and ARGV[2] + 0
if not now then
  local clock = call('TIME')
  now = clock[1] * 1000000 + clock[2]
end
local receipt_stamp, receipt_serial, receipt_units, max_units, receipt_windows
local replies, next_at = {}, 1

local function next_receipt()
  local number, window
  receipt_stamp, receipt_serial, receipt_units, max_units, number, next_at =
    unpack(RECEIPT, ARGV[1], next_at)
  if receipt_units < max_units then max_units = receipt_units end
  receipt_windows = {}
  for _ = 1, number do
    window, next_at = unpack('>I7', ARGV[1], next_at)
    receipt_windows[window] = true
  end
end
