-- The end of a refund: see `refund_begin`.
if refunded > 0 then
  call('ZADD', records, stamp_text, receipt .. pack('>I7', refunded))
  call('ZREMRANGEBYSCORE', records, '-inf', format('(%.0f', now - 2 * life))
  call('ZREMRANGEBYRANK', records, '0', format('%.0f', -MAX_RECORDS - 1))
  call('PEXPIRE', records, format('%.0f', (2 * life + 2 * SLICE) / MILLISECOND))
end
return refunded
