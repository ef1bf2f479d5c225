    -- Says how much longer than its window a unit of the key counts: a unit that a rule with a
    -- lease charged may be used later than it was charged. Until the last of these units has ceased
    -- to count, units count longer for every taker, also for one whose rule has no lease.
    --
    -- Uses   lease: that of the taker's rule, or 0; marked_lease, lease_stamp, lease_life: the
    --        key's mark, which says the longest lease, when something was charged under a lease
    --        last, and how long that counts; 0 without a mark
    -- Gives  longer_by, in microseconds; is_marked: whether the mark is of use
    local longer_by, is_marked = lease, now < lease_stamp + lease_life
    if is_marked and marked_lease > lease then longer_by = marked_lease end
