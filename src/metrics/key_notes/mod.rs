//! What counters note of keys, for the page and the fleet.

pub(super) mod last_rules;
pub(super) mod limited_keys;
