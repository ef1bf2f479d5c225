      -- Decides how the next takes of a row are answered, and how many of them alike, as if each
      -- had come alone.
      --
      -- Uses   cost, takes; limits, used; counters[n]: what the algorithm keeps for a quota
      --        wait(counters[n], limit, cost, used): microseconds until the cost fits, if it does
      --        not fit now
      -- Gives  verdict; alike: the number of takes that it answers; number: the wait, or 0;
      --        charged: the units to charge
      local verdict, number, alike, charged = ALLOWED, 0, takes, 0
      if cost > 0 then
        for n = 1, number_of_quotas do
          local limit = limits[n]
          local room = limit - used[n]
          if cost > limit then
            verdict, number = NEVER, 0
            break
          elseif cost > room then
            verdict = DENIED
            number = math.max(number, wait(counters[n], limit, cost, used[n]))
          elseif takes > 1 then
            local fits = floor(room / cost)
            if fits < alike then alike = fits end
          end
        end
        if verdict == ALLOWED then
          charged = cost * alike
          has_charged = true
        else
          alike = takes
        end
      end
      takes = takes - alike
