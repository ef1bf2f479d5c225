//! The algorithms: pure functions of a state, an instant, the quotas and a cost. No clock, no I/O.
//!
//! Each has a Lua twin in the folder `lua/`, and both give the same decision for the same history.
//! [`SlidingLog`] keeps one log for all quotas of a rule; the others keep a [`Tally`](tally::Tally) for each,
//! and [`Tallies`](tallies::Tallies) does for them what they have in common. [`Count`] is whichever of them a
//! key's rule asks for.

mod choice;
mod count;
mod entries;
mod fixed_window;
mod gcra;
mod refunds;
mod ruling;
mod sliding_log;
mod sliding_window;
mod tallies;
mod tally;

pub use choice::{Algorithm, Counting};
pub use count::Count;
#[cfg(feature = "redis")]
pub(crate) use entries::MODULUS_MASK;
pub use fixed_window::FixedWindow;
pub use gcra::Gcra;
#[cfg(feature = "redis")]
pub(crate) use gcra::Pace;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
