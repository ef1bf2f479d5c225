  -- Whatever is wrong with a key is the answer to its own takes, instead of those that it had.
  --
  -- Uses   trouble: a message; replies, size, size_before
  if trouble then
    -- Not this key's alone: the server is no master. Nothing was written, and the connection has to
    -- know.
    if string.find(trouble, 'READONLY', 1, true) then return redis.error_reply(trouble) end
    trouble = sub(trouble, 1, 1024)
    for n = size, size_before + 1, -1 do replies[n] = nil end
    size = size_before + 1
    replies[size] = pack(SHORT_ANSWER, ERROR, #trouble) .. trouble
  end
