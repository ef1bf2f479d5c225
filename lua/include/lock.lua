-- What the scripts of locks have in common. All of it reads what others may have written: what is no number
-- of ours counts as the least that it can be.
--
-- Uses   nothing
-- Gives  call
--        text(integer)         as Redis is to store it: all its digits
--        count_of(field)       how often a lock is held, by the field of its holder
--        token_of(string)      the fencing token that is stored; 0 if there is none
--        extend(key, millis)   the key lives for so long at least
--        keep(key, token)      stores the token, for 30 days
--        latch_life(lease)     how long a latch says that a request took the lock: at least as long
--                              as the same request may be made again

local call = redis.call
local MOST, TOKEN_LIFE = 9007199254740992, '2592000000'

local function text(integer) return string.format('%.0f', integer) end

local function whole(string, least)
  local number = tonumber(string or '')
  if not number or not (number >= least and number < MOST) then return least end
  return math.floor(number)
end

local function count_of(field) return whole(field, 1) end

local function token_of(string) return whole(string, 0) end

local function extend(key, millis)
  if call('PTTL', key) < millis then call('PEXPIRE', key, text(millis)) end
end

local function keep(key, token) call('SET', key, text(token), 'PX', TOKEN_LIFE) end

local function latch_life(lease) return text(math.max(lease, 10000)) end
