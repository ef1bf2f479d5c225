            -- Chooses the tallies that are charged and kept: those of the rule's quotas, and the 16
            -- of earlier quotas that are needed longest; 2 if one of the rule's counts for all.
            --
            -- Uses   counters, has_bound, tallies, anything_counts, now, ends_at
            -- Gives  tallies
            local charged_tallies, earlier, is_own = {}, {}, {}
            for n = 1, number_of_quotas do
              local tally = counters[n]
              if not is_own[tally] then charged_tallies[#charged_tallies + 1] = tally end
              is_own[tally] = true
            end
            for t = 1, anything_counts and #tallies or 0 do
              local tally = tallies[t]
              local ends = math.min(ends_at(tally), tally.needed_until)
              if not is_own[tally] and ends > now then earlier[#earlier + 1] = { tally, ends } end
            end
            if #earlier > 1 then
              table.sort(earlier, function(a, b)
                if a[2] ~= b[2] then return a[2] > b[2] end
                if a[1].window ~= b[1].window then return a[1].window > b[1].window end
                return a[1].max > b[1].max
              end)
            end
            for e = 1, math.min(#earlier, has_bound and 2 or 16) do
              charged_tallies[#charged_tallies + 1] = earlier[e][1]
            end
            tallies = charged_tallies
