-- The end of refunds: see `refund_begin`.
--
-- Uses   refund() -> units that were given back
local replies = {}
for place = 1, #KEYS, 2 do
  key = KEYS[place]
  receipt_stamp, receipt_serial, receipt_units, most =
    unpack(RECEIPT, ARGV[1], (place - 1) / 2 * RECEIPT_SIZE + 1)
  stamp_text = format('%.0f', receipt_stamp)
  if receipt_units < most then most = receipt_units end
  replies[#replies + 1] = refund(KEYS[place + 1])
end
return replies
