//! The algorithms: pure functions of a state, an instant, the quotas and a cost. No clock, no I/O.
//!
//! Each has a Lua twin in the folder `lua/`, and both give the same decision for the same history.

mod sliding_log;

pub use sliding_log::SlidingLog;
