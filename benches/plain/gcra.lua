-- GCRA written plainly, to compare with lua/gcra.lua: one quota, no plans or refunds, and
-- what it reads is believed. It has the same questions and states.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local floor = math.floor
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local question = ARGV[1]
local _, at, id = unpack('>BI2c8', question)
local expiry, slice, max, window, burst, life, pace_units, pace_micros =
  unpack('>I7I7I7I7I7I7I7I7', question, 13)
local expiry_text = string.format('%.0f', expiry)
local values = KEYS[2] and call('MGET', _G.unpack(KEYS)) or { call('GET', KEYS[1]) }
local replies = { pack('>c8I8I7', id, 0, now) }
for place = 1, #KEYS do
  local takes, cost, _, after = unpack('>I2I7I7', question, at + 4)
  at = after
  local raw, serial, last, since, start, units, _ = values[place], 0, -1, now, now, 0, nil
  if raw then
    _, serial, last, _, _, _, _, since, start, units = unpack('>BI7I7I7I7I7I7I7I7I7', raw)
  end
  local used = units - floor((now - start) * pace_units / pace_micros)
  if used <= 0 then units, used, start = 0, 0, now end
  local charged, paces, verdict = cost * takes, floor((now - start) / pace_micros), 0
  if used + charged <= burst then
    start, units = start + paces * pace_micros, units - paces * pace_units + charged
    used, serial, verdict = used + charged, serial + charged, 1
    local state = pack('>BI7I7I7I7I7I7I7I7I7', 249, serial, now, max, window, burst, now + life,
      since, start, units)
    if floor(last / slice) == floor(now / slice) then
      call('SET', KEYS[place], state, 'KEEPTTL')
    else
      call('SET', KEYS[place], state, 'PX', expiry_text)
    end
  end
  replies[place + 1] = pack('>BI2I7I7I7', verdict, takes, serial, burst - used, 0)
end
return table.concat(replies)
