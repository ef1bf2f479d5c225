//! A store that is not asked while it keeps failing.
//!
//! `breaker.rs` is the door to the store and the pauses, `state.rs` says which calls pass,
//! and `prober.rs` asks the store while it is open.

mod breaker;
mod prober;
mod state;

pub(super) use breaker::{Breaker, MAX_FAILURES};
