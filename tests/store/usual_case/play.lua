-- Plays a history in several worlds, step by step, and compares them after each step. It stands
-- behind the functions `take_worlds`, a take for each world; `refund`, `refund_calendar` and
-- `reset`, all of them (KEYS, ARGV); TELLS_HELD; and QUOTA_SIZE, of one in a question.
--
-- The server's clock stands still meanwhile, so that no key expires.
--
-- ARGV     for each step five arguments: what, now, the numbers of its keys, a text, a flag
--            take     the questions; whether the mixed world skips the usual case
--            refund   pairs of: how many receipts of the key are newer, and the most units
--            reset
--            write    a string in the place of the key; list: the same as a list
--            set      a member with the score of now, in the place of what is no set
--            flip     an offset in the state and a number: the byte there is changed by that number
--            cut      the state has so many bytes at most
--            field    an offset in the state; the instant or the number to write there, or with `+`
--                     before it what to add to the number that stands there
--            shift    so many units were charged before all others: moves the running totals
-- Reply: what differed, or nothing

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local MODULUS = 4503599627370496
-- See formats.md.
local JOINT, CALENDAR, CALENDAR_MARK, CALENDAR_STATE_SIZE = 32768, 17, 254, 22
-- The world of the receipts is the first. In the last of three the usual case is used now and then.
local GENERAL, MIXED = 2, 3
local receipts = {}

local function name_of(world, key) return 'w' .. world .. ':' .. key end

local function read_number(text, offset)
  return (unpack('>I7', text, offset))
end

-- Whether the two parts have to agree about a damaged state. They need not where the entries of a
-- sliding window are out of order, in which a binary search finds anything; nor where the oldest
-- entry of a log is said to be later than the newest one, for which one part says a longer wait;
-- nor where a counter gives takes back since 0: no script writes that, and the core takes the
-- counter for a new one, which gives back takes of now on.
local REFUNDABLE_SINCE = { [248] = 37, [249] = 44, [250] = 37 }
local function is_compared(state)
  local mark, size = string.byte(state), #state
  local since = REFUNDABLE_SINCE[mark]
  if since and size >= since + 6 and read_number(state, since) == 0 then return false end
  if mark == 247 then return size < 36 or read_number(state, 23) <= read_number(state, 30) end
  if mark ~= 248 or size < 59 or (size - 59) % 14 ~= 0 then return true end
  local stamp, total = 0, read_number(state, 51)
  for offset = 60, size - 13, 14 do
    local next_stamp, next_total = unpack('>I7I7', state, offset)
    local units = (next_total - total) % MODULUS
    if next_stamp < stamp or units > MODULUS / 4 then return false end
    stamp, total = next_stamp, next_total
  end
  return true
end

-- Changes the bytes of a key: of a set those of its newest member.
local function change(key, with)
  local kind = call('TYPE', key).ok
  if kind == 'string' then
    local text = call('GET', key)
    local other = with(text)
    if other ~= text and is_compared(other) then call('SET', key, other, 'KEEPTTL') end
  elseif kind == 'zset' then
    local newest = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
    local other = with(newest[1])
    if other ~= newest[1] and is_compared(other) then
      call('ZADD', key, newest[2], other)
      call('ZREM', key, newest[1])
    end
  end
end

local function write_at(text, offset, bytes)
  if #text < offset + #bytes - 1 then return text end
  return string.sub(text, 1, offset - 1) .. bytes .. string.sub(text, offset + #bytes)
end

local function moved(text, offset, by)
  return write_at(text, offset, pack('>I7', (read_number(text, offset) + by) % MODULUS))
end

-- Moves the running totals of a log or of a sliding window with one counter.
local function shift(key, by)
  local kind = call('TYPE', key).ok
  if kind == 'string' then
    change(key, function(text)
      if #text < 59 or string.byte(text) ~= 248 then return text end
      text = moved(text, 51, by)
      for offset = 67, #text - 6, 14 do text = moved(text, offset, by) end
      return text
    end)
  elseif kind == 'zset' then
    local members = call('ZRANGE', key, '0', '-1', 'WITHSCORES')
    for n = 1, #members, 2 do
      if #members[n] < 57 then return end
    end
    for n = 1, #members, 2 do
      local text = members[n]
      for offset = 2, 16, 7 do text = moved(text, offset, by) end
      call('ZREM', key, members[n])
      call('ZADD', key, members[n + 1], text)
    end
    call('PEXPIRE', key, '100000')
  end
end

local function hex(text)
  return (string.gsub(text, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

-- A sliding window that begins afresh may go on with its running totals, or count from zero: only
-- differences of totals matter.
local function without_base(state)
  local changed, from = state, 16
  if string.byte(state) ~= 248 or #state < from + 43 then return state end
  repeat
    if from + 43 > #state then return state end
    local base, number = unpack('>I7I2', state, from + 35)
    if from + 43 + 14 * number > #state then return state end
    for n = 1, number do changed = moved(changed, from + 37 + 14 * n, -base) end
    changed = moved(changed, from + 35, -base)
    from = from + 44 + 14 * number
  until from > #state
  return changed
end

-- All that stands under a key.
local function dump(key)
  local kind, content = call('TYPE', key).ok, ''
  if kind == 'string' then
    content = without_base(call('GET', key))
  elseif kind == 'zset' then
    content = table.concat(call('ZRANGE', key, '0', '-1', 'WITHSCORES'), ' ')
  elseif kind ~= 'none' then
    content = kind
  end
  return content
end

-- When keys expire, by the clock of the history, in milliseconds. A key that keeps its expiry has
-- one that is much later than any that is set.
local LONG = 1000000000000
local expires_at = {}

local function server_ms()
  local time = call('TIME')
  return time[1] * 1000 + time[2] / 1000
end

-- Notes the expiry of a key that was set at `began` at the earliest, or nil if it has none.
local function note_expiry(key, now, began)
  local ttl = call('PTTL', key)
  if ttl >= 0 and ttl < LONG / 2 then
    expires_at[key] = now / 1000 + ttl + server_ms() - began
    call('PEXPIRE', key, string.format('%.0f', LONG))
  elseif ttl == -2 then
    expires_at[key] = 0
  end
  return ttl ~= -1 and expires_at[key] or nil
end

-- The answer to a take under one quota that a client derives of a state: of the bucket or the window
-- that is busy since `start`, and in which so many units were charged since then. Of a take that was
-- charged it has the serial number.
local function derived(question, rule, cost, now, start, units, serial)
  local max, window = unpack('>I7I7', question, rule + 15)
  local used, limit, ends, fits = units, max, start + window, start + window
  if TELLS_HELD then
    local burst, _, pace_units, pace_micros = unpack('>I7I7I7I7', question, rule + 29)
    used, limit = math.max(units - math.floor((now - start) * pace_units / pace_micros), 0), burst
    ends = start + math.ceil(units * pace_micros / pace_units)
    fits = start + math.ceil((units + cost - burst) * pace_micros / pace_units)
  end
  return pack('>BI2I7I7I7', serial and 1 or 0, 1, serial or fits - now, limit - used, ends - now)
end

local STATE_SIZES = { [249] = 64, [250] = 57 }

-- That of a take that was charged, and left this state.
local function derived_by(state, question, rule, cost)
  local serial, now = unpack('>I7I7', state, 2)
  local start, units = unpack('>I7I7', state, #state - 13)
  return derived(question, rule, cost, now, start, units, serial)
end

-- The reply with an answer in the place of each state. Nil if it has another form than the questions
-- ask for. It keeps the receipts if `keeps`.
local function read_reply(reply, question, keys, keeps)
  local _, record = unpack('>BI2', question)
  local further = record + #keys * 20
  if #reply < 23 then return nil end
  local id, mark, number, now = unpack('>c8BI7I7', reply)
  local at, whole, rule, _, _, cost = 24, pack('>c8I8I7', id, 0, now), unpack('>I2I2I2I7', question, record)
  if mark == 9 and #reply == 30 then
    return whole .. derived(question, rule, cost, now, read_number(reply, 24), number)
  elseif mark > 0 then
    -- The state of a lone take has its mark, its serial number and its instant in the head.
    reply = whole .. string.sub(reply, 9)
  elseif number > 0 then
    return nil
  end
  for place = 1, #keys do
    local rows, takes, answers_all
    rule, rows, takes, cost, _, record = unpack('>I2I2I2I7I7', question, record)
    local limiting, windows, is_of_calendar = string.byte(question, rule), '', false
    if rows >= JOINT then rows = 1 end
    if limiting == CALENDAR then limiting, is_of_calendar = 0, true end
    for n = 0, limiting - 1 do
      windows = windows .. string.sub(question, rule + 22 + n * QUOTA_SIZE, rule + 28 + n * QUOTA_SIZE)
    end
    for row = 1, rows do
      if row > 1 then takes, cost, _, further = unpack('>I2I7I7', question, further) end
      local left = answers_all and 0 or takes
      while left > 0 do
        local size = STATE_SIZES[string.byte(reply, at)]
        if size then
          if limiting ~= 1 or #reply < at + size - 1 then return nil end
          local answer = derived_by(string.sub(reply, at, at + size - 1), question, rule, cost)
          reply = string.sub(reply, 1, at - 1) .. answer .. string.sub(reply, at + size)
        end
        if #reply < at + 2 then return nil end
        local verdict, alike, from = nil, nil, at
        verdict, alike, at = unpack('>BI2', reply, at)
        if verdict == 4 then
          at, alike, answers_all = at + alike, left, true
        elseif verdict ~= 3 and verdict ~= 7 then
          local told = is_of_calendar and 1 or limiting
          if #reply < at + 6 + 14 * told then return nil end
          local serial, stamp = read_number(reply, at), now
          if is_of_calendar then stamp = now + read_number(reply, at + 14) end
          at = at + 7 + 14 * told
          local of = receipts[keys[place]] or {}
          if keeps then receipts[keys[place]] = of end
          if is_of_calendar and verdict == 1 then
            if keeps then of[#of + 1] = { stamp, serial, cost, windows } end
          elseif verdict == 1 and cost > 0 then
            if TELLS_HELD and alike > 1 then at = at + 7 * limiting end
            for n = alike - 1, 0, -1 do
              if keeps then of[#of + 1] = { now, (serial - n * cost) % MODULUS, cost, windows } end
            end
          end
        end
        whole = whole .. string.sub(reply, from, at - 1)
        left = left - alike
        if left < 0 or alike == 0 then return nil end
      end
    end
  end
  return at == #reply + 1 and whole or nil
end

local function refund_of(key, text, keeps)
  local of, number, parts = receipts[key] or {}, 0, ''
  for newer, most in string.gmatch(text, '(%d+) (%d+)') do
    local receipt = of[#of - newer]
    if receipt then
      if not keeps then table.remove(of, #of - newer) end
      number, parts = number + 1,
        parts .. pack('>I7I7I7I7B', receipt[1], receipt[2], receipt[3], most + 0, #receipt[4] / 7) .. receipt[4]
    end
  end
  return number > 0 and pack('>I2I4', number, #parts) .. parts
end

-- What becomes of a step in a world: its reply as a text.
local function act(world, what, now, numbers, text, flag)
  local keys = {}
  for n, key in ipairs(numbers) do keys[n] = name_of(world, key) end
  if what == 'take' then
    local skips = world == GENERAL or world == MIXED and flag == '1'
    if skips then text = '\1' .. string.sub(text, 2) end
    return take_worlds[world](keys, { text, now })
  elseif what == 'refund' then
    local refunds = tonumber(numbers[1]) > 4 and refund_calendar or refund
    return text and cjson.encode(refunds({ keys[1], keys[1] .. ':refunded' }, { text, now })) or ''
  elseif what == 'reset' then
    return tostring(reset({ keys[1], keys[1] .. ':refunded', keys[1] .. ':held' }, { 0, now }))
  end
  local key = keys[1]
  if what == 'write' or what == 'list' then
    call('DEL', key)
    call(what == 'write' and 'SET' or 'RPUSH', key, text)
    call('PEXPIRE', key, '100000')
  elseif what == 'set' then
    if call('TYPE', key).ok ~= 'zset' then call('DEL', key) end
    call('ZADD', key, now, text)
    call('PEXPIRE', key, '100000')
  elseif what == 'flip' then
    local offset, by = string.match(text, '(%d+) (%d+)')
    change(key, function(state)
      if state == '' then return state end
      offset = offset % #state + 1
      return write_at(state, offset, string.char((string.byte(state, offset) + by) % 256))
    end)
  elseif what == 'cut' then
    change(key, function(state) return string.sub(state, 1, text) end)
  elseif what == 'field' then
    local offset, sign, number = string.match(text, '(%d+) ([+=])(-?%d+)')
    change(key, function(state)
      if #state < offset + 6 then return state end
      local value = sign == '+' and read_number(state, offset + 0) + number or number + 0
      return write_at(state, offset + 0, pack('>I7', math.max(value, 0)))
    end)
  elseif what == 'shift' then
    shift(key, text + 0)
  end
  return ''
end

-- The life of what is charged, in microseconds. A key may expire later than the other part sets it:
-- either may leave what a rule with a longer expiry has set.
local function lives(question, keys)
  local _, record = unpack('>BI2', question)
  local life_of = {}
  for _, key in ipairs(keys) do
    local rule = unpack('>I2', question, record)
    local quotas, expiry, slice = unpack('>BI7I7', question, rule)
    record = record + 20
    -- The key says itself until when it counts.
    if quotas == CALENDAR then expiry, slice = 0, 0 end
    -- Of two rules of a key, one may have denied.
    life_of[key] = math.min(life_of[key] or math.huge, expiry * 1000 - 2 * slice - 1000)
  end
  return life_of
end

local dumps, is_damaged = {}, {}

-- A count of the calendar is kept for so long behind its end, less a second in which this runs.
local NEARLY_TWO_DAYS = 172799000000

-- What differs after a step.
local function compare(what, now, keys, text, replies, began)
  for world = 2, #replies do
    if replies[world] ~= replies[1] then
      return string.format('the replies of worlds 1 and %d\n%s\n%s', world, hex(replies[1]),
        hex(replies[world]))
    end
  end
  local life_of = {}
  if what == 'take' then
    life_of = lives(text, keys)
  elseif what ~= 'refund' and what ~= 'reset' then
    is_damaged[keys[1]] = true
  end
  for _, key in ipairs(keys) do
    for _, suffix in ipairs({ '', ':refunded' }) do
      local first
      for world = 1, #take_worlds do
        local name = name_of(world, key) .. suffix
        local content, expiry = dump(name), note_expiry(name, now, began)
        if not expiry then return 'no expiry: ' .. name end
        if world == 1 then first = content end
        if content ~= first then
          return string.format('key %s in worlds 1 and %d\n%s\n%s', key .. suffix, world,
            hex(first), hex(content))
        end
        local life = suffix == '' and life_of[key]
        if string.byte(content) == CALENDAR_MARK and #content == CALENDAR_STATE_SIZE then
          life = read_number(content, 2) - now + NEARLY_TWO_DAYS
        end
        local is_charged = life and content ~= (dumps[name] or '')
        if is_charged and not is_damaged[key] and expiry < (now + life) / 1000 then
          return string.format('%s expires too early: %.0f', name, expiry)
        end
        dumps[name] = content
      end
    end
  end
end

-- Gives all worlds the state of the first one, whose running totals may be others.
local function make_alike(key)
  if call('TYPE', name_of(1, key)).ok ~= 'string' then return end
  for world = 2, #take_worlds do
    call('SET', name_of(world, key), call('GET', name_of(1, key)), 'KEEPTTL')
  end
end

local function play()
  for at = 1, #ARGV, 5 do
    local what, now, numbers, text, flag = _G.unpack(ARGV, at, at + 4)
    local keys, replies, prefix = {}, {}, string.format('step %d, %s: ', (at + 4) / 5, what)
    for key in string.gmatch(numbers, '%d') do keys[#keys + 1] = key end
    if what ~= 'take' and what ~= 'refund' and what ~= 'reset' then make_alike(keys[1]) end
    if what == 'refund' then text = refund_of(keys[1], text, flag == '1') end
    local began = server_ms()
    for world = 1, #take_worlds do
      local is_done, reply = pcall(act, world, what, now, keys, text, flag)
      if not is_done or type(reply) == 'table' then
        reply = type(reply) == 'table' and reply.err or tostring(reply)
        return string.format('%sworld %d fails: %s', prefix, world, reply)
      end
      if what == 'take' then
        replies[world] = read_reply(reply, text, keys, world == 1)
        if not replies[world] then return prefix .. 'this is no reply: ' .. hex(reply) end
      else
        replies[world] = reply
      end
    end
    local difference = compare(what, now, keys, text, replies, began)
    if difference then return prefix .. difference end
  end
end

local difference = play()
for world = 1, #take_worlds do
  for key = 1, 8 do call('DEL', name_of(world, key), name_of(world, key) .. ':refunded') end
end
return difference or ''
