-- Answers the takes of an algorithm that keeps a counter for each quota.
--
-- A state is a string: the mark of its algorithm, and then, as big-endian integers of 7 bytes,
--   serial       units ever charged, modulo 2^52: tells takes of one instant apart
--   last_charge  when something was charged last
-- and the counters: those of the rule's quotas, and those of earlier quotas for as long as what was
-- charged under them still counts. Each charge goes to all of them, so that two rules may take
-- turns on one key, and neither refills the other. What all counters have:
--   max, window       the quota that it was charged under last
--   needed_until      until when it is needed for what was charged while that was the rule's quota
--   refundable_since  takes that were charged before this are not told apart in it, and not given
--                     back
-- Where a rule with a lease charged the key, the state begins with leased_mark, and
--   marked_lease, lease_stamp, lease_life
--                the lease that counts for all takers: see `longer`
-- stand before the counters.
-- A value that is no such string, or damaged, is as good as none.
--
-- Nothing is written unless something is charged. If the clock went back, what was charged in the
-- future counts; a charge then pulls it back to now.
--
-- Uses   own_mark, leased_mark; used_now, read_counter: see `read_counters`
--        read_quota(at) -> quota, at   with max, window, limit, life: how long a charge counts at
--                                      most, `variant`, and perhaps capacity: a counter of the same
--                                      window, variant and capacity can be the quota's own
--        lengthen(quota, by), or nil: makes its window longer than `given`, that of the rule
--        new_counter(quota)              with window, variant, and perhaps capacity
--        carried_over(counter, charged_at)
--                                      units that another counter has to be charged with then to
--                                      count as much
--        charge(counter, time, units, charged_at) -> how many of them it could not hold; none if
--                                                    counter.owes
--        wait(counter, limit, cost): microseconds until the cost fits, if it does not fit now
--        ends_at: see `answer`
--        write_counter(counter)
--        Here `charged_at` is when something was charged last.
-- Gives  the reply of the script

-- The counter of each quota.
local own = { false }

local place = 0
while place < number_of_keys do
  place = place + 1
  key = KEYS[place]
-- include: read_question
  -- The usual case has answered most. Their rows are one each.
  if number_of_quotas == 0 then
    local row = 1
-- include: read_row
-- include: holders
-- include: end_key
  elseif not replies[place + 1] then
    local has_charged, is_prepared = false, false
    local is_changed, sets_expiry = false, false
    -- MGET answers nothing for a key of another type, and GET an error.
    local raw = values and values[place] or pcall('GET', key)
    local error_text = type(raw) == 'table' and raw.err
    if error_text then raw = false end
    error_text = error_text or joint_last and joint_error
-- include: read_counters
    local marked_lease, lease_stamp, lease_life = 0, 0, 0
    if lease_text ~= '' then
      marked_lease, lease_stamp, lease_life = unpack(LEASE, lease_text)
      -- A lease that cannot be is as good as none.
      if lease_life > TEN_YEARS then marked_lease, lease_stamp, lease_life = 0, 0, 0 end
    end
-- include: longer
    if lengthen then
      for n = 1, number_of_quotas do
        local quota = quotas[n]
        if quota.window ~= quota.given + longer_by then lengthen(quota, longer_by) end
      end
    end

    for n = 1, number_of_quotas do
      local quota, counter = quotas[n], nil
      for before = 1, n - 1 do
        local own = own[before]
        if own.window == quota.window and own.variant == quota.variant
          and own.capacity == quota.capacity then counter = own end
      end
      for t = 1, not counter and anything_counts and #counters or 0 do
        local known = counters[t]
        if known.window == quota.window and known.variant == quota.variant
          and known.capacity == quota.capacity then counter = known end
      end
      if not counter then
        counter, is_changed = new_counter(quota), true
        -- What counts under any other quota counts here, too.
        local most = 0
        for t = 1, anything_counts and #counters or 0 do
          local known, bound = counters[t], has_bound and quotas[number_of_quotas]
          local units = known.needed_until > now and carried_over(known, last_charge) or 0
          -- A bucket that counts for all others may have lost units while it was half full.
          if bound and bound.capacity and known.max == bound.max and known.window == bound.window
            and known.capacity == bound.capacity and units >= floor(bound.capacity / 2) then
            units = MAX_HELD
          end
          if units > most then most = units end
        end
        if most > 0 then
          charge(counter, last_charge, most, last_charge)
          counter.used = used_now(counter, last_charge)
        end
      end
      own[n], used[n] = counter, counter.used
    end

    for row = 1, rows do
-- include: read_row
      while takes + unfitting > 0 and not error_text do
        local is_unfitting = takes == 0
        if is_unfitting then takes, unfitting = unfitting, 0 end
-- include: decide
        for n = 1, verdict == DENIED and number_limiting or 0 do
          if cost > limits[n] - used[n] then
            number = math.max(number, wait(own[n], limits[n], cost))
          end
        end
        if charged > 0 then
          if not is_prepared then
            is_prepared = true
            local refundable_since = reset_since > now and reset_since or now
            local went_back = last_charge > now
            for t = 1, #counters do
              local counter = counters[t]
              if went_back then
                counter.needed_until = math.min(counter.needed_until, now + counter.life)
                counter.refundable_since = math.max(counter.refundable_since, last_charge + 1)
              end
              refundable_since = math.max(refundable_since, counter.refundable_since)
            end
            -- The serial numbers run from zero again, unless a take with such a number may have the
            -- same stamp: one of this very instant, or one from before the clock went back.
            if not anything_counts and refundable_since == now and last_charge ~= now then
              serial = 0
            end
            for n = 1, number_of_quotas do
              local quota, counter = quotas[n], own[n]
              local charged_before = counter.needed_until - quota.life
              if floor(charged_before / slice) ~= floor(now / slice) then sets_expiry = true end
              if counter.life ~= quota.life then is_changed = true end
              counter.max, counter.burst, counter.life = quota.max, quota.burst, quota.life
              counter.needed_until = now + counter.life
              counter.owes = counter.owes or owes and n <= number_limiting
              if counter.refundable_since == 0 then counter.refundable_since = refundable_since end
            end
            sets_expiry = sets_expiry or is_changed or went_back or owes
            if is_changed or #counters > 1 then
-- include: choose_counters
            end
          end
          for t = 1, #counters do
            local counter = counters[t]
            local lost = charge(counter, now, charged, last_charge)
            if lost > 0 and counter.refundable_since <= now then
              counter.refundable_since = now + 1
            end
            -- Units owed drain for longer than a full bucket does.
            if counter.owes then
              counter.needed_until = math.max(counter.needed_until, ends_at(counter))
            end
          end
          last_charge = now
          serial = (serial + charged) % MODULUS
          number = serial
        end
-- include: answer
      end
    end

    if has_charged then
      local life = 0
      for n = 1, lease > 0 and number_of_quotas or 0 do life = math.max(life, quotas[n].life) end
-- include: mark_lease
      local state = pack(HEADER, lease_life > 0 and leased_mark or own_mark, serial, last_charge)
      if lease_life > 0 then
        state = state .. pack(LEASE, marked_lease, lease_stamp, lease_life)
      end
      local written
      for t = 1, #counters do state = state .. write_counter(counters[t]) end
      if sets_expiry then
        local longest = expiry
        for t = 1, #counters do
          local counter = counters[t]
          local needed = counter.needed_until - now + 2 * math.max(counter.life / 16, SLICE)
          longest = math.max(longest, math.ceil(needed / MILLISECOND))
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
      error_text = written.err
    end
-- include: end_key
  end
end

return concat(replies)
