      -- Encodes an answer: see `reply_format`.
      --
      -- Uses   what `decide` gives; owes, held; limits, used, own
      --        ends_at(own[n]): from when on nothing counts that was charged under the quota
      size = size + 1
      if owes then number = charged end
      if held and number < held and (verdict == DENIED or verdict == ON_HOLD) then
        verdict, number = ON_HOLD, held
      end
      for n = 1, number_limiting do
        local units_now = used[n] + charged
        local remaining, reset = limits[n] - units_now, 0
        used[n] = units_now
        if remaining < 0 then remaining = 0 end
        if units_now > 0 and limits[n] > 0 then
          reset = ends_at(own[n]) - now
          if reset < 0 then reset = 0 end
        end
        if n == 1 then
          answers[size] = pack(ANSWER, verdict, alike, number, remaining, reset)
        else
          answers[size] = answers[size] .. pack(NEXT_QUOTA, remaining, reset)
        end
      end
      if tells_held and charged > 0 and alike > 1 then
        for n = 1, number_limiting do
          answers[size] = answers[size] .. pack(HELD, own[n].units)
        end
      end
