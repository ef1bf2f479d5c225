//! Sentinels: which server they name as the master, and what they publish about failovers.
//!
//! A sentinel is believed only in part. Its answer may be old, so the answer with the latest
//! failover counts, and the server named must say by `ROLE` that it is a master. Its messages may
//! be missed, so it is also asked after each subscription.
//!
//! ```text
//! connect      ask all sentinels -> the answer with the latest epoch -> ROLE says master -> Up
//! while Up     subscribed to all -> +promoted-slave or +switch-master, of our master,
//!                                   to another server -> connect
//! lost         the link is closed, or the master says READONLY -> connect
//! ```
//!
//! Nothing here is a task: the reconnector polls it, while it connects and while it watches. If no
//! sentinel answers, the link to the master is kept: sentinels are needed to find a master, not to
//! use it.

mod failovers;
mod sentinels;

pub(super) use sentinels::{Master, Sentinels};
