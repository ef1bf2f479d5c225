-- Sets the rate of a limiter.
--
-- KEYS     see lua/include/permits.lua
-- ARGV[1]  now in microseconds since 1970, only in tests; empty: the server's clock
-- ARGV[2]  if_missing: only if there is no rate; grants under a rate that has expired still count
--          always: earlier grants no longer count
--          chosen: the rate that a process chose, unless a later choice is in force; the first
--          time, it replaces any other rate; earlier grants still count
-- ARGV[3]  the permits in an interval
-- ARGV[4]  the interval in milliseconds
-- ARGV[5]  0: one budget for all clients, 1: one budget for each client
-- ARGV[6]  the keep-alive time in milliseconds: without a grant for this long, the rate is
--          forgotten; 0: never
-- ARGV[7]  1 if clients of Redisson use the limiter as well; 0 if the counts may expire
-- ARGV[8]  chosen: when the process chose the rate, as the last reply said; empty for the first
--          time
-- ARGV[9]  chosen, for the first time: how many microseconds ago the process chose the rate
-- ARGV[10] the caller's generation: 1, 2 or 3
--
-- Reply: when the rate was chosen, in microseconds; 0 if it was not set, except with chosen; then
--        also a negative number as in lua/include/permits.lua, if clients of Redisson count in
--        another way

local call, own = redis.call, ARGV[10] + 0
local mode, rate, interval, rate_type, keep_alive = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local is_shared = ARGV[7] == '1'
local config = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime', 'countsExpire',
  'epoch', 'chosenAt')
local exists = config[1] and config[2] and config[3]
local did_counts_expire = exists and config[4] ~= '0'
  and config[5] == config[1] .. ' ' .. config[2] .. ' ' .. config[3]
local time = call('TIME')
local now = ARGV[1] ~= '' and ARGV[1] + 0 or time[1] * 1000000 + time[2]
if mode == 'chosen' then
  -- include: generation
end
local stands = exists and tonumber(config[7] or nil) or 0
-- What a person or a program sets by hand is a choice of now.
local chosen_at, reply_if_unset = math.max(now, stands + 1), 0
local is_set = mode == 'always' or not exists
local replaces = mode == 'chosen' and exists
if mode == 'chosen' then
  local is_first = ARGV[8] == ''
  local is_same = exists and config[1] == rate and config[2] == interval
    and config[3] == rate_type and (config[4] or '0') == keep_alive
  if is_first then
    chosen_at = math.max(now - ARGV[9], is_same and stands or 0, 1)
  else
    chosen_at = ARGV[8] + 0
    -- The clock went back, as after a failover. What was chosen by this clock is later then.
    if chosen_at > now and stands > 0 and stands <= now then chosen_at = stands - 1 end
  end
  local is_later = not exists or is_first or chosen_at > stands
  if is_later and is_same then
    call('HSET', KEYS[1], 'chosenAt', string.format('%.0f', chosen_at))
  end
  is_set, reply_if_unset = is_later and not is_same, chosen_at
end
if not is_set then
  -- The rate stays, but the limiter is shared with Redisson from now on.
  if is_shared and call('HDEL', KEYS[1], 'countsExpire') == 1 and call('PTTL', KEYS[1]) < 0 then
    -- Without a set, the value may be a fixed window: it has to end.
    if call('PERSIST', KEYS[3]) == 1 then call('PERSIST', KEYS[2]) end
  end
  return reply_if_unset
end

-- The rate under which the earlier grants were made, if they still count.
local old_interval, old_type, epoch = nil, nil, nil
if replaces then
  old_interval, old_type, epoch = config[2], config[3], config[6] or ''
elseif mode ~= 'always' then
  local forgotten = redis.pcall('GET', KEYS[10])
  if type(forgotten) == 'string' then
    old_interval, old_type, epoch = string.match(forgotten, '^(%d+) (%d) (.*)$')
  end
end
local new_epoch = rate_type == '1' and time[1] .. string.format('%06d', time[2]) or ''
local ms = math.floor(now / 1000)
local expired_until = tonumber(old_interval) and ms - old_interval
if not epoch or epoch == '' and old_type ~= '1' then
  -- No client has a budget of its own that still counts.
  epoch = new_epoch
elseif expired_until and interval + 0 > old_interval + 0 then
  -- The longer interval would count these grants again. Only their clients can remove them.
  local id, expired_before = string.match(epoch, '^([^ :]*):?(%d*)$')
  expired_until = math.max(expired_until, tonumber(expired_before or nil) or 0)
  epoch = (id or '') .. ':' .. string.format('%.0f', expired_until)
end

call('HSET', KEYS[1], 'rate', rate, 'interval', interval, 'type', rate_type, 'chosenAt',
  string.format('%.0f', chosen_at))
if epoch == '' then call('HDEL', KEYS[1], 'epoch') else call('HSET', KEYS[1], 'epoch', epoch) end
if is_shared then
  call('HDEL', KEYS[1], 'countsExpire')
elseif not replaces or did_counts_expire then
  call('HSET', KEYS[1], 'countsExpire', rate .. ' ' .. interval .. ' ' .. rate_type)
end
if keep_alive ~= '0' then
  call('HSET', KEYS[1], 'keepAliveTime', keep_alive)
  call('PEXPIRE', KEYS[1], keep_alive)
else
  call('HDEL', KEYS[1], 'keepAliveTime')
  call('PERSIST', KEYS[1])
end

-- The next call counts the remaining permits from the grants that have not expired. These live for
-- as long as the new interval needs them.
call('DEL', KEYS[2], KEYS[4], KEYS[10])
if not old_interval then
  call('DEL', KEYS[3], KEYS[5], KEYS[6])
  return chosen_at
end
for _, permits in ipairs({ KEYS[3], KEYS[5] }) do
  if expired_until then
    redis.pcall('ZREMRANGEBYSCORE', permits, '-inf', string.format('%.0f', expired_until))
  end
  local newest = redis.pcall('ZRANGE', permits, '-1', '-1', 'WITHSCORES')[2]
  local expiry = call('PTTL', permits)
  -- Without an expiry, the counts were shared with Redisson: they still are if the rate stays.
  local stays = expiry == -1 and is_shared and keep_alive == '0'
  if newest and not stays then
    local counts = math.max(newest - ms, 0) + interval
    if keep_alive ~= '0' and call('PTTL', KEYS[1]) < counts then
      call('PEXPIRE', KEYS[1], string.format('%.0f', counts))
    end
    counts = string.format('%.0f', math.max(counts, keep_alive) + 1000)
    if expiry < counts + 0 then
      call('PEXPIRE', permits, counts)
      if permits == KEYS[5] then call('PEXPIRE', KEYS[6], counts) end
    end
  end
end
return chosen_at
