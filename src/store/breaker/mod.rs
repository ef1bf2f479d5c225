//! The circuit breaker: a store is not asked while it keeps failing.
//!
//! `breaker.rs` is the door to the store and the pauses, `state.rs` says which calls pass, and
//! `prober.rs` asks the store while the breaker is open. What decides meanwhile is in
//! `../fallback.rs`, and `../guarded.rs` puts both and the time-out together.

mod breaker;
mod prober;
mod state;

pub(super) use breaker::{Breaker, MAX_FAILURES};
