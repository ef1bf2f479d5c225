  -- The end of a key: its answers. Whatever is wrong with the key answers all of its takes.
  --
  -- Uses   trouble: a message; answers, size
  -- Gives  replies
  if trouble then
    -- Not this key's alone: the server is no master. Nothing was written, and the connection has to
    -- know.
    if string.find(trouble, 'READONLY', 1, true) then return redis.error_reply(trouble) end
    trouble = sub(trouble, 1, 1024)
    answers[1], size = pack(SHORT_ANSWER, ERROR, #trouble) .. trouble, 1
  end
  replies[place + 1] = size == 1 and answers[1] or concat(answers, '', 1, size)
