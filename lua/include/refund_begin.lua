-- The beginning of a refund: gives back, once, what a take was charged.
--
-- KEYS[1]  the count, as the algorithm's script keeps it
-- KEYS[2]  what was given back: a sorted set
-- ARGV[1]  the receipt: stamp, serial number and units of the take, big-endian integers of 7 bytes
-- ARGV[2]  the most units to give back
-- ARGV[3]  now in microseconds since the epoch, only in tests; without it the server's own clock
--
-- Reply: the units that were given back; 0 if the take was given back before, or counts no longer
--
-- A member of KEYS[2] is a receipt and the units given back. It stays for twice as long as a charge
-- counts. Of more than MAX_RECORDS members the oldest go, and no take as old as those is given back
-- any more.
--
-- Uses   what `setup` gives
-- Gives  key, records, receipt_stamp, stamp_text, receipt_serial; most: the most units to give
--        back; and for the algorithm to fill refunded, and life: how long a charge counts at most

local RECORD_SIZE, RECEIPT_SIZE, MAX_RECORDS = 28, 21, 65536
local records, receipt = KEYS[2], ARGV[1]
local receipt_stamp, receipt_serial, charged = unpack('>I7I7I7', receipt)
local most, stamp_text = math.min(ARGV[2] + 0, charged), format('%.0f', receipt_stamp)
local refunded, life = 0, 0
key = KEYS[1]

for _, record in ipairs(call('ZRANGEBYSCORE', records, stamp_text, stamp_text)) do
  if sub(record, 1, RECEIPT_SIZE) == receipt then return 0 end
end
if call('ZCARD', records) >= MAX_RECORDS then
  local oldest = call('ZRANGE', records, '0', '0', 'WITHSCORES')[2]
  if receipt_stamp <= oldest + 0 then return 0 end
end
