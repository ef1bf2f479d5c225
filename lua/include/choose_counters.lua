            -- Chooses the counters that are charged and kept: those of the rule's quotas, and the
            -- 16 of earlier quotas that are needed longest; 2 if one of the rule's counts for all.
            -- No two counters are equal in all that they are sorted by.
            --
            -- Uses   own, has_bound, counters, anything_counts, now, ends_at
            -- Gives  counters
            local charged_counters, earlier, is_own = {}, {}, {}
            for n = 1, number_of_quotas do
              local counter = own[n]
              if not is_own[counter] then charged_counters[#charged_counters + 1] = counter end
              is_own[counter] = true
            end
            for t = 1, anything_counts and #counters or 0 do
              local counter = counters[t]
              local ends = math.min(ends_at(counter), counter.needed_until)
              if not is_own[counter] and ends > now then earlier[#earlier + 1] = { counter, ends } end
            end
            if #earlier > 1 then
              table.sort(earlier, function(a, b)
                if a[2] ~= b[2] then return a[2] > b[2] end
                if a[1].window ~= b[1].window then return a[1].window > b[1].window end
                if a[1].max ~= b[1].max then return a[1].max > b[1].max end
                if a[1].variant ~= b[1].variant then return a[1].variant > b[1].variant end
                return (a[1].capacity or 0) > (b[1].capacity or 0)
              end)
            end
            for e = 1, math.min(#earlier, has_bound and MAX_EARLIER_BESIDE_BOUND or MAX_EARLIER) do
              charged_counters[#charged_counters + 1] = earlier[e][1]
            end
            counters = charged_counters
