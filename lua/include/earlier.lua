        -- A charge while there are tallies of earlier quotas: those stay while they are needed, those that are
        -- longest first, and no more than 16 of them.
        --
        -- Uses   now, over_at(), own: the tallies of the rule's quotas, tallies: all
        -- Gives  tallies: those to charge, with the rule's own first; changed, if some went
        local earlier = {}
        for _, tally in ipairs(tallies) do
          local is_own = false
          for _, mine in ipairs(own) do is_own = is_own or mine == tally end
          local ends = over_at(tally)
          if ends > tally[4] then ends = tally[4] end
          if not is_own and ends > now then earlier[#earlier + 1] = { tally, ends } end
        end
        table.sort(earlier, function(a, b)
          if a[2] ~= b[2] then return a[2] > b[2] end
          if a[1][2] ~= b[1][2] then return a[1][2] > b[1][2] end
          return a[1][1] > b[1][1]
        end)
        if #tallies ~= #own + #earlier then changed = true end
        tallies = {}
        for _, tally in ipairs(own) do tallies[#tallies + 1] = tally end
        for place = 1, math.min(#earlier, 16) do tallies[#tallies + 1] = earlier[place][1] end
