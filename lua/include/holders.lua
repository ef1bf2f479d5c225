    -- Decides about a permit: the right of a request to run, of at most so many at a time.
    --
    -- A count of permits is a sorted set: a member for each holder, of a process and a number,
    -- scored by the millisecond at which its lease ends. Takes of permits are one each, and have
    -- the number of the holder as a cost; or they only look, with a cost of 0.
    --
    -- Uses   what `read_row` gives; permits: how many there are; lease and expiry in milliseconds;
    --        slice: the process
    -- Gives  an answer, of which `remaining` is the number of permits that are held
    local millis, verdict = format('%.0f', floor(now / MILLISECOND)), ALLOWED
    local held = pcall('ZCOUNT', key, '(' .. millis, '+inf')
    local error_text = type(held) == 'table' and held.err or joint_error
    if takes + unfitting > 0 and not error_text then
      if permits == 0 and cost > 0 then
        verdict = NEVER
      elseif cost > 0 and (held >= permits or unfitting > 0) then
        verdict = DENIED
      end
      if looks and verdict ~= ALLOWED then fitting = 0 end
      if not looks and verdict == ALLOWED and cost > 0 then
        local until_millis = format('%.0f', floor(now / MILLISECOND) + 1 + lease)
        local added = pcall('ZADD', key, until_millis, pack('>I7I7', slice, cost))
        if type(added) == 'table' then
          error_text = added.err
        else
          held = held + 1
          call('PEXPIRE', key, format('%.0f', expiry))
          -- Those of processes that were killed.
          call('ZREMRANGEBYSCORE', key, '-inf', millis)
        end
      end
      answers[1], size = pack(ANSWER, verdict, takes + unfitting, 0, held, 0), 1
    end
