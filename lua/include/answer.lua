      -- Encodes an answer: see `reply`.
      --
      -- Uses   what `decide` gives; limits, used, kept; over_at(kept[n]): from when on nothing of
      --        the quota counts
      size = size + 1
      for n = 1, number_of_quotas do
        used[n] = used[n] + charged
        local remaining, reset = limits[n] - used[n], 0
        if remaining < 0 then remaining = 0 end
        if used[n] > 0 and limits[n] > 0 then
          reset = over_at(kept[n]) - now
          if reset < 0 then reset = 0 end
        end
        if n == 1 then
          answers[size] = pack(ANSWER, verdict, alike, number, remaining, reset)
        else
          answers[size] = answers[size] .. pack(NEXT_QUOTA, remaining, reset)
        end
      end
      if POURS and charged > 0 and alike > 1 then
        for n = 1, number_of_quotas do
          answers[size] = answers[size] .. pack(POURED, kept[n].units)
        end
      end
