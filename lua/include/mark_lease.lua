      -- Makes the key's mark after a charge: see `longer`.
      --
      -- Uses   lease, longer_by, is_marked; life: the longest window of the quotas, as long as its
      --        units count
      -- Gives  marked_lease, lease_stamp, lease_life
      if lease > 0 then
        marked_lease, lease_stamp = longer_by, now
        if not is_marked or life > lease_life then lease_life = life end
      elseif not is_marked then
        marked_lease, lease_stamp, lease_life = 0, 0, 0
      elseif lease_stamp > now then
        -- Units that were charged in the future count as charged now.
        lease_stamp = now
      end
