      -- Decides how the next takes of a row are answered, and how many of them alike, as if each
      -- had come alone.
      --
      -- Uses   cost, takes; limits, used; owes, most; held
      -- Gives  verdict; alike: the number of takes that it answers; charged: the units to charge;
      --        number: 0, for the algorithm to fill
      local verdict, number, alike, charged = ALLOWED, 0, takes, 0
      if owes then
        charged = cost
        for n = 1, number_limiting do
          charged = math.max(math.min(charged, most[n] - used[n]), 0)
        end
      else
        for n = 1, number_limiting do
          local limit = limits[n]
          local room = limit - used[n]
          if cost > limit or limit == 0 then
            verdict = NEVER
            break
          elseif cost > room then
            verdict = DENIED
          elseif takes > 1 and cost > 0 then
            local fits = floor(room / cost)
            if fits < alike then alike = fits end
          end
        end
        if held and verdict == ALLOWED then verdict = ON_HOLD end
        if verdict == ALLOWED then
          charged = cost * alike
        else
          alike = takes
        end
      end
      takes = takes - alike
      if looks then
        -- The other counts are looked at, too, before any is charged.
        fitting = math.min(fitting, verdict == ALLOWED and alike or 0)
        break
      elseif is_unfitting and verdict == ALLOWED then
        -- Another count denies what fits here.
        verdict, alike, charged, takes = DENIED, alike + takes, 0, 0
      end
      has_charged = has_charged or charged > 0
