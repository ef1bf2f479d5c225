    -- Reads a row: cost (0 only looks); 2 bytes: the number of takes; deadline in microseconds.
    -- Takes that are late are answered, and nothing is done.
    --
    -- Uses   question, at; add an answer: replies, size
    -- Gives  cost, takes: those that have to be decided
    cost, takes, deadline, at = unpack('<I7I2I7', question, at)
    if now > deadline then
      size = size + 1
      replies[size] = pack(SHORT_ANSWER, LATE, takes)
      takes = 0
    end
