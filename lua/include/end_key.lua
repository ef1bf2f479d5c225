  -- Puts the answers about a key into the reply. If something is wrong with the key, all of its
  -- takes are answered with that error.
  --
  -- Uses   error_text: a message or nil; answers, size
  -- Gives  replies; place: the first of several counts that were looked at, once more
  if joint_last then joint_error = error_text end
  if error_text then
    -- This error is not about the key: the server is no master. Nothing was written, and the whole
    -- call fails, so that the connection looks for the master.
    if string.find(error_text, 'READONLY', 1, true) then return redis.error_reply(error_text) end
    error_text = sub(error_text, 1, 1024)
    answers[1], size = pack(SHORT_ANSWER, ERROR, #error_text) .. error_text, 1
  end
  replies[place + 1] = not looks and (size == 1 and answers[1] or concat(answers, '', 1, size))
  if place == joint_last then
    -- All counts are looked at: now each is charged, or none.
    if looks then place = joint_first - 1 else joint_first, joint_last = nil, nil end
    looks = false
  end
