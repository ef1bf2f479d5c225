  -- Whatever is wrong with a key is the answer to its own takes, instead of those that it had.
  --
  -- Uses   trouble: a message; replies, size, size_before
  if trouble then
    trouble = sub(trouble, 1, 1024)
    for n = size, size_before + 1, -1 do replies[n] = nil end
    size = size_before + 1
    replies[size] = pack(SHORT_ANSWER, ERROR, #trouble) .. trouble
  end
