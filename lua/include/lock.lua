-- What the scripts of locks and semaphores have in common. Values that no script of this crate has
-- written are read as the least possible number.
--
-- Uses   nothing
-- Gives  call                      redis.call
--        TOKEN_EXPIRY              the expiry of a fencing token: 30 days, in milliseconds
--        text(integer)             the integer with all its digits
--        to_integer(value, least)  the value as an integer of at least `least`
--        count_of(field)           how often a lock is held, by the field of its holder
--        token_of(value)           a stored fencing token; 0 if there is none
--        extend(key, millis)       lets the key live for at least this long
--        latch_expiry(lease)       the expiry of the latch of a granted request, in milliseconds:
--                                  at least as long as the same call may be repeated

local call = redis.call
local MAX_INTEGER, TOKEN_EXPIRY = 9007199254740992, '2592000000'

local function text(integer) return string.format('%.0f', integer) end

local function to_integer(value, least)
  local number = tonumber(value or '')
  if not number or not (number >= least and number < MAX_INTEGER) then return least end
  return math.floor(number)
end

local function count_of(field) return to_integer(field, 1) end

local function token_of(value) return to_integer(value, 0) end

local function extend(key, millis)
  if call('PTTL', key) < millis then call('PEXPIRE', key, text(millis)) end
end

local function latch_expiry(lease) return text(math.max(lease, 10000)) end
