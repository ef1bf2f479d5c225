-- Gives back what a take was charged by the sliding log.
--
-- KEYS, ARGV and the reply: see include/refund_begin.lua. KEYS[1] is a sorted set: see
-- include/log_entry.lua.

-- include: setup
-- include: log_entry
-- include: refund_begin
-- include: refund_entry

newest = call('ZRANGE', key, '-1', '-1')[1]
-- include: read_log
if not newest or stamp > now or receipt_stamp < refundable_since then return 0 end
life = math.max(horizon, long_window)
local counting = horizon
if now < long_until then
  counting = life
  -- Older entries may have been dropped because that many newer units sufficed.
  most = math.max(math.min(most, (total - oldest_base) % MODULUS - long_units), 0)
end
-- All other callers wait meanwhile: very many entries are not rewritten.
local behind = call('ZCOUNT', key, stamp_text, '+inf')
if behind == 0 or behind > 4096 then return 0 end
local all, entries = call('ZCARD', key), {}
local before = call('ZRANGEBYSCORE', key, stamp_text, '+inf')
for n, member in ipairs(before) do
  entries[n] = { entry_of(member) }
  if not entries[n][1] then return 0 end
end
refunded = refund_entry(entries, most, MILLISECOND, counting, all == 1)
if refunded > 0 then
  -- The newest entry describes the whole set; it may be another one now.
  if not entries[1] then
    before[2] = call('ZRANGE', key, '-2', '-2')[1]
    entries[1] = { entry_of(before[2]) }
    if not entries[1][1] then return 0 end
    if all == 2 then oldest_stamp = entries[1][1] end
  elseif #entries < #before and all == #before then
    oldest_stamp = entries[1][1]
  end
  -- First the new ones, so that the key, and with it the expiry, is there all the time.
  local stays = {}
  for n, entry in ipairs(entries) do
    local member = pack(ENTRY, LOG_MARK, entry[3], entry[2], oldest_base, oldest_stamp, entry[1],
      horizon, units, serial)
    if n == #entries then member = member .. sub(newest, ENTRY_SIZE + 1) end
    call('ZADD', key, entry[1], member)
    stays[member] = true
  end
  for _, member in ipairs(before) do
    if not stays[member] then call('ZREM', key, member) end
  end
end
-- include: refund_end
