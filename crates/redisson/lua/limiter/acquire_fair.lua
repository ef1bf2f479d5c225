-- Grants permits to the callers of all clients in the order of their arrival. Callers that have to
-- wait keep their place in the queue until they ask again.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  now in microseconds since 1970, only in tests; empty: the server's clock
-- ARGV[2]  how many permits each caller wants
-- ARGV[3]  the number of callers, at most 64
-- ARGV[4]  the grants of the callers in the order of their arrival: members of KEYS[3], 21 bytes
--          each; bytes 2 to 9 are the id of the client
-- ARGV[5]  as in acquire.lua
-- ARGV[6]  as in acquire.lua
-- ARGV[7]  as in acquire.lua
--
-- Reply: {the positions of the callers that were granted their permits, from 1, the microseconds
--         until the next caller's permits can be granted, or 0}; the rest as in acquire.lua

local call, own, requested, is_read_only = redis.call, 3, ARGV[2] + 0, false
local chosen_at = tonumber(ARGV[7])
local test_now = ARGV[1] ~= '' and ARGV[1]
-- include: permits

local redisson_average = tonumber(ARGV[5])
-- include: give_way

local number, client, is_in_doubt = ARGV[3] + 0, string.sub(ARGV[4], 2, 9), ARGV[6] == '1'
-- A client asks for its waiting callers at least once a second. After ALIVE milliseconds without a
-- call it counts as ended. One call looks at MAX_LOOKED_AT callers at most.
local ALIVE, MAX_LOOKED_AT, queue, clients = 5000, 512, KEYS[7], KEYS[8]
if config[3] == '1' then
  queue = KEYS[9]
else
  call('ZADD', clients, text(ms + ALIVE), client)
  call('PEXPIRE', clients, 2 * ALIVE)
end

-- New callers enter the queue at its end, also after the clock went back.
local last = call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]
local arrival = text(math.max(now, (last or 0) + 1))
local position_of, granted = {}, {}
for position = 1, number do
  local member = string.sub(ARGV[4], 21 * position - 20, 21 * position)
  if is_in_doubt and still_counts(member) then
    granted[#granted + 1] = position
    call('ZADD', permits_key, text(ms_up), member)
  else
    position_of[member] = position
    call('ZADD', queue, 'NX', arrival, member)
  end
end
call('PEXPIRE', queue, 2 * ALIVE)

-- `unreserved` is what is left for the next caller in the queue. Callers that do not ask now keep
-- their share reserved.
local unreserved, rank, looked_at, is_done = remaining - left_to_redisson, 0, 0, #granted == number
while not is_done and looked_at < MAX_LOOKED_AT do
  local members = call('ZRANGE', queue, text(rank), text(rank + 63))
  is_done = #members == 0
  for _, member in ipairs(members) do
    local member_client, permits = string.sub(member, 2, 9), permits_of(member)
    looked_at = looked_at + 1
    local alive_until = tonumber(call('ZSCORE', clients, member_client) or nil) or 0
    -- A later time was written before the clock went back.
    local is_alive = member_client == client
      or alive_until > ms and alive_until <= ms + ALIVE
    if not is_alive then
      call('ZREM', queue, member)
    else
      rank = rank + 1
      unreserved = unreserved - permits
      -- This caller and all behind it have to wait.
      if unreserved < 0 then is_done = true break end
      if position_of[member] then
        remaining, rank = remaining - permits, rank - 1
        granted[#granted + 1] = position_of[member]
        -- The caller may be in the other queue if the type of the rate has changed.
        call('ZREM', KEYS[7], member)
        call('ZREM', KEYS[9], member)
        call('ZADD', permits_key, text(ms_up), member)
        if #granted == number then is_done = true break end
      end
    end
  end
end
if #granted > 0 then store(true) end
if call('EXISTS', KEYS[7]) == 0 then call('DEL', clients) end
if #granted == number then return { granted, 0, redisson_lately, interval } end

-- The next call goes on behind MAX_LOOKED_AT callers.
if unreserved >= 0 then return { granted, 1, redisson_lately, interval } end

-- include: permits_wait
return { granted, wait_for(math.min(-unreserved, rate)), redisson_lately, interval }
