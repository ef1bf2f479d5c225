-- The takes of an algorithm that keeps a tally for each quota.
--
-- A state is a string: the mark of its algorithm, and then, as big-endian integers of 7 bytes,
--   serial   units ever charged, modulo 2^52: tells takes of one instant apart
--   newest   when something was charged last
-- and the tallies: those of the rule's quotas, and those of earlier quotas for as long as what was
-- charged under them still counts. Each charge goes to all of them, so that two rules may take
-- turns on one key, and neither refills the other. What all tallies have:
--   max, window   the quota that it was charged under last
--   needed        until when it is needed for what was charged while that was the rule's
--   begun         takes that were charged before this are not told apart in it, and not given back
-- A value that is no such string, or damaged, is as good as none.
--
-- Nothing is written unless something is charged. If the clock went back, what was charged in the
-- future counts; a charge then pulls it back to now.
--
-- Uses   MARK; count, read_tally: see `state`
--        read_quota(at) -> quota, at   with max, window, limit, life: how long a charge counts at
--                                      most, and `like`: tallies of the same window and `like` can
--                                      go on as its own
--        new_tally(quota)              with window, like
--        carry(tally, newest)          units that another tally has to be charged then to count as
--                                      much
--        wait, over_at: see `decide` and `answer`
--        pour(tally, time, units, newest) -> how many of them it could not hold
--        write_tally(tally)
-- Gives  the reply of the script

local kept = { false }

at = 1
for place = 1, #KEYS do
  key = KEYS[place]
-- include: question
  if not replies[place + 1] then
    local has_charged, has_begun = false, false
    local is_changed, renews = false, false
    -- MGET answers nothing for a key of another type, and GET an error.
    local raw = values and values[place] or pcall('GET', key)
    local trouble = type(raw) == 'table' and raw.err
    if trouble then raw = false end
-- include: state

    for n = 1, number_of_quotas do
      local quota, tally = quotas[n], nil
      for before = 1, n - 1 do
        local own = kept[before]
        if own.window == quota.window and own.like == quota.like then tally = own end
      end
      for t = 1, not tally and is_live and #tallies or 0 do
        local known = tallies[t]
        if known.window == quota.window and known.like == quota.like then tally = known end
      end
      if not tally then
        tally, is_changed = new_tally(quota), true
        -- What counts under any other quota counts here, too.
        local most = 0
        for t = 1, is_live and #tallies or 0 do
          local units = tallies[t].needed > now and carry(tallies[t], newest) or 0
          if units > most then most = units end
        end
        if most > 0 then
          pour(tally, newest, most, newest)
          tally.used = count(tally, newest)
        end
      end
      kept[n], used[n] = tally, tally.used
    end

    for row = 1, rows do
-- include: row
      while takes > 0 and not trouble do
-- include: decide
        if charged > 0 then
          if not has_begun then
            has_begun = true
            local begun = now
            local went_back = newest > now
            for t = 1, #tallies do
              local tally = tallies[t]
              if went_back then
                tally.needed = math.min(tally.needed, now + tally.life)
                tally.begun = math.max(tally.begun, newest + 1)
              end
              if tally.begun > begun then begun = tally.begun end
            end
            -- The serial numbers run from zero again, unless a take with such a number may have the
            -- same stamp: one of this very instant, or one from before the clock went back.
            if not is_live and begun == now and newest ~= now then serial = 0 end
            for n = 1, number_of_quotas do
              local quota, tally = quotas[n], kept[n]
              local charged_before = tally.needed - quota.life
              if floor(charged_before / slice) ~= floor(now / slice) then renews = true end
              if tally.life ~= quota.life then is_changed = true end
              tally.max, tally.burst, tally.life = quota.max, quota.burst, quota.life
              tally.needed = now + tally.life
              if tally.begun == 0 then tally.begun = begun end
            end
            renews = renews or is_changed or went_back
            if is_changed or #tallies > 1 then
-- include: earlier
            end
          end
          for t = 1, #tallies do
            local tally = tallies[t]
            local lost = pour(tally, now, charged, newest)
            if lost > 0 and tally.begun <= now then tally.begun = now + 1 end
          end
          newest = now
          serial = (serial + charged) % MODULUS
          number = serial
        end
-- include: answer
      end
    end

    if has_charged then
      local state = pack(HEADER, MARK, serial, newest)
      local written
      for t = 1, #tallies do state = state .. write_tally(tallies[t]) end
      if renews then
        local longest = expiry
        for t = 1, #tallies do
          local tally = tallies[t]
          local needed = (tally.needed - now + 2 * math.max(tally.life / 16, SLICE)) / MILLISECOND
          if needed > longest then longest = math.ceil(needed) end
        end
        if longest == expiry then
          -- The same for all keys of a rule: to format a number takes as long as a command.
          expiry_text = expiry_text or format('%.0f', expiry)
          longest = expiry_text
        end
        written = pcall('SET', key, state, 'PX', longest)
      else
        written = pcall('SET', key, state, 'KEEPTTL')
      end
      trouble = written.err
    end
-- include: key_end
  end
end

return concat(replies)
