-- The end of refunds: see `refund_begin`.
--
-- Uses   refund_all(number, apart): gives back so many receipts, and adds a reply for each; `apart`
--        is the key of what the algorithm keeps apart
for place = 1, #KEYS, 2 do
  local number, size, answered
  key, answered = KEYS[place], #replies
  number, size, next_at = unpack('>I2I4', ARGV[1], next_at)
  local behind = next_at + size
  local is_done, reason = _G.pcall(refund_all, number, KEYS[place + 1])
  if not is_done then
    local text = type(reason) == 'table' and reason.err or tostring(reason)
    -- This error is not about the key: the server is no master. Nothing was written, and the whole
    -- call fails, so that the connection looks for the master.
    if string.find(text, 'READONLY', 1, true) then error(reason, 0) end
    for n = 1, number do replies[answered + n] = { err = sub(text, 1, 1024) } end
  end
  next_at = behind
end
return replies
