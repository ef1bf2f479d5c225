//! Sentinels: which server they name as the master, and what they publish about failovers.

mod failovers;
mod sentinels;

pub(super) use sentinels::{Master, Sentinels};
