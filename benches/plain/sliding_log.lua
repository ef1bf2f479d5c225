-- The sliding log written plainly, to compare with lua/sliding_log.lua: one quota, no plans
-- or refunds, and what it reads is believed. It has the same questions, entries and replies.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local floor, format = math.floor, string.format
local ENTRY = '>BI7I7I7I7I7I7I7I7'
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_text = clock[1] .. string.sub('00000' .. clock[2], -6)
local question = ARGV[1]
local _, at, id = unpack('>BI2c8', question)
local expiry, slice, max, window = unpack('>I7I7I7I7', question, 13)
local replies = { pack('>c8I8I7', id, 0, now) }
for place = 1, #KEYS do
  local key = KEYS[place]
  local takes, cost, _, after = unpack('>I2I7I7', question, at + 4)
  at = after
  local newest = call('ZRANGE', key, '-1', '-1')[1]
  local total, base, oldest_base, oldest, stamp, edge, _ = 0, 0, 0, now, now - window, nil, nil
  if newest then _, total, base, oldest_base, oldest, stamp = unpack(ENTRY, newest) end
  local first_base = oldest_base
  if oldest <= now - window then
    edge = format('%.0f', now - window)
    local first = call('ZRANGEBYSCORE', key, '(' .. edge, '+inf', 'LIMIT', '0', '1')[1]
    first_base = total
    if first then _, _, first_base, _, _, oldest = unpack(ENTRY, first) end
  end
  local charged, verdict = cost * takes, 0
  if total - first_base + charged <= max then
    local merges = newest and floor(stamp / 1000) == floor(now / 1000)
    if not merges then base = total end
    total, verdict = total + charged, 1
    call('ZADD', key, now_text,
      pack(ENTRY, 247, total, base, oldest_base, oldest, now, window, max, total))
    if merges then call('ZREMRANGEBYRANK', key, '-2', '-2') end
    if edge and total - oldest_base > max then call('ZREMRANGEBYSCORE', key, '0', edge) end
    if not newest or floor(stamp / slice) ~= floor(now / slice) then
      call('PEXPIRE', key, format('%.0f', expiry))
    end
  end
  replies[place + 1] = pack('>BI2I7I7I7', verdict, takes, total, max - total + first_base, 0)
end
return table.concat(replies)
