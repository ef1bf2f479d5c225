-- The beginning of refunds: each gives back what a take was charged.
--
-- KEYS     for each refund two keys of one slot: the count, as the algorithm's script keeps it, and
--          what was given back, where the algorithm keeps that apart: see include/given_back.lua
-- ARGV[1]  for each refund the receipt: stamp, serial number and units of the take, and the most
--          units to give back: big-endian integers of 7 bytes
-- ARGV[2]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: for each refund the units that were given back; 0 if the take counts no longer
--
-- Nothing says here whether a take was given back before: whoever charged it asks once.
--
-- Uses   what `setup` gives
-- Gives  key, receipt_stamp, stamp_text, receipt_serial, receipt_units; most: the most units to give
--        back

local RECEIPT, RECEIPT_SIZE = '>I7I7I7I7', 28
now = ARGV[2] and ARGV[2] + 0 or now
local receipt_stamp, stamp_text, receipt_serial, receipt_units, most
