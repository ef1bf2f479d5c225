//! Unit leases attacked: never more than the quota is used, nothing is given back twice or lost
//! for longer than promised, and nobody waits for a lease.
