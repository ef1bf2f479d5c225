    -- Reads a row behind the first one, and answers its takes if they are late: nothing is done.
    --
    -- Uses   question, further, row; add an answer: answers, size
    -- Gives  cost, takes: those that have to be decided; of a take over several counts, those that fit
    --        into all, and unfitting: the others
    if row > 1 then cost, takes, deadline, further = unpack(ROW, question, further) end
    if now > deadline then
      size = size + 1
      answers[size] = pack(SHORT_ANSWER, LATE, takes)
      takes = 0
    end
    unfitting = 0
    if joint_last and not looks and takes > 0 then takes, unfitting = fitting, takes - fitting end
