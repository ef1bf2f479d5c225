-- What the scripts of a fleet have in common.
--
-- Gives  now, by the server's clock, and STEP_BACK: in milliseconds
--        whole(number): its text
--        call(command, key, ...): of a command about a key; the error about a foreign value names
--        it

-- A key that ends so much later than it may is damage. Below that, the clock has stepped back.
local STEP_BACK = 86400000
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function whole(number) return string.format('%.0f', number) end
local function call(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  local reason = type(reply) == 'table' and reply.err
  if not reason then return reply end
  if string.find(reason, 'WRONGTYPE', 1, true) then reason = reason .. ': ' .. key end
  error(reason, 0)
end
