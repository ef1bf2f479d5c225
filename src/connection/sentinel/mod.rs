//! Sentinels: which server they name as the master, and what they publish about failovers.
//!
//! A sentinel is believed only in part. Its answer may be old, so the answer with the latest
//! failover counts, and the server named must say by `ROLE` that it is a master. Its messages may
//! be missed, so it is also asked after each subscription.

mod failovers;
mod sentinels;

pub(super) use sentinels::{Master, Sentinels};
