-- Grants permits of a rate limiter in the order in which callers came, over all clients. Callers that have to wait keep
-- their places until they ask again.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  the permits of each
-- ARGV[2]  the number of callers, at most 64
-- ARGV[3]  a grant for each as it is kept, of 21 bytes, in order of arrival; bytes 2 to 9 are the client's
-- ARGV[4]  now in microseconds since the epoch, only in tests; empty: the server's own clock
-- ARGV[5]  the deadline by the server's own clock, in microseconds
--
-- Reply: the places of the callers that have their permits, from 1, and the microseconds until the next can have them,
-- or 0; a number less than 0 see there; the error LATE after the deadline

local call, n, given_now, reads = redis.call, ARGV[1] + 0, ARGV[4] ~= '' and ARGV[4], false
-- include: permits
if not given_now and now > ARGV[5] + 0 then return redis.error_reply('LATE the deadline is over') end

local number, client, is_per_client = ARGV[2] + 0, string.sub(ARGV[3], 2, 9), config[3] == '1'
-- A client with callers that wait asks at least once a second, and no call looks at more of them.
local ALIVE, MAX_LOOKED_AT, waiting, clients = 5000, 512, KEYS[7], KEYS[8]
if is_per_client then
  waiting = KEYS[9]
else
  call('ZADD', clients, text(ms + ALIVE), client)
  call('PEXPIRE', clients, 2 * ALIVE)
end

-- New callers stand behind all others, also if the clock went back.
local last = call('ZRANGE', waiting, '-1', '-1', 'WITHSCORES')[2]
local arrival = text(math.max(now, (last or 0) + 1))
local asks = {}
for place = 1, number do
  local member = string.sub(ARGV[3], 21 * place - 20, 21 * place)
  asks[member] = place
  call('ZADD', waiting, 'NX', arrival, member)
end
call('PEXPIRE', waiting, 2 * ALIVE)

-- `free` is what is left for the callers behind those that have been looked at; the permits of callers that do not ask
-- now are kept for them.
local free, granted, rank, looked_at, is_over = left, {}, 0, 0, false
while not is_over and looked_at < MAX_LOOKED_AT do
  local some = call('ZRANGE', waiting, text(rank), text(rank + 63))
  is_over = #some == 0
  for _, member in ipairs(some) do
    local of, permits = string.sub(member, 2, 9), weight(member)
    looked_at = looked_at + 1
    local alive_until = tonumber(call('ZSCORE', clients, of) or nil) or 0
    -- A later time is that of a clock that went back.
    local is_alive = of == client or alive_until > ms and alive_until <= ms + ALIVE
    if not is_alive then
      call('ZREM', waiting, member)
    else
      rank = rank + 1
      free = free - permits
      -- And so all behind have to wait.
      if free < 0 then is_over = true break end
      if asks[member] then
        left, rank = left - permits, rank - 1
        granted[#granted + 1] = asks[member]
        -- Also where it waited before the type of the rate changed.
        call('ZREM', KEYS[7], member)
        call('ZREM', KEYS[9], member)
        call('ZADD', permits_key, text(ms_up), member)
        if #granted == number then is_over = true break end
      end
    end
  end
end
if #granted > 0 then write(true) end
if call('EXISTS', KEYS[7]) == 0 then call('DEL', clients) end
if #granted == number then return { granted, 0 } end

-- The rest of a long queue is looked at by the next call.
if free >= 0 then return { granted, 1 } end

-- include: permits_wait
-- Until the first that has to wait can have its permits.
return { granted, wait_for(math.min(-free, rate)) }
