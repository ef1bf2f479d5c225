//! A store that is not asked while it keeps failing.
//!
//! `breaker.rs` is the wrapper around the store and the pauses, `state.rs` says which calls pass,
//! and `prober.rs` asks the store while it is open.

mod breaker;
mod prober;
mod state;

pub(super) use breaker::Breaker;
pub use breaker::CircuitBreaker;
