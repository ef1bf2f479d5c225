    -- Reads a row behind the first one, and answers its takes if they are late: nothing is done.
    --
    -- Uses   question, further, row; add an answer: answers, size
    -- Gives  cost, takes: those that have to be decided
    if row > 1 then cost, takes, deadline, further = unpack(ROW, question, further) end
    if now > deadline then
      size = size + 1
      answers[size] = pack(SHORT_ANSWER, LATE, takes)
      takes = 0
    end
