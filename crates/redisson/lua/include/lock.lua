-- What the scripts of locks have in common. Values that no script of this crate has
-- written are read as the least possible number.
--
-- Uses   nothing
-- Gives  call                      redis.call
--        TOKEN_EXPIRY              the expiry of a fencing token: 30 days, in milliseconds
--        text(integer)             the integer with all its digits
--        to_integer(value, least)  the value as an integer of at least `least`
--        announce(command, channel)
--                                  says on the channel that the lock is free, and returns how many
--                                  clients heard it. By PUBLISH if the server does not know or
--                                  permit the command; an error if it permits none

local call = redis.call
local MAX_INTEGER, TOKEN_EXPIRY = 9007199254740992, '2592000000'

local function text(integer) return string.format('%.0f', integer) end

local function to_integer(value, least)
  local number = tonumber(value or '')
  if not number or not (number >= least and number < MAX_INTEGER) then return least end
  return math.floor(number)
end

local function announce(command, channel)
  local listeners = redis.pcall(command, channel, '0')
  if type(listeners) == 'number' or command == 'PUBLISH' then return listeners end
  return redis.pcall('PUBLISH', channel, '0')
end
