//! How takes are counted: pure functions of a state, an instant, the quotas and a cost, without a
//! clock and without I/O.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::algorithm::Count;
//! use tidegate::{Algorithm, Quota};
//!
//! let quotas = [Quota::new(Duration::from_secs(10), 2)?];
//! let mut count = Count::default();
//! for expected in [true, true, false] {
//!     let decision = count.take(Algorithm::SlidingLog, 1_000_000, &quotas, 1);
//!     assert_eq!(decision.is_allowed(), expected);
//! }
//! # Ok::<(), tidegate::rule::QuotaError>(())
//! ```
//!
//! [`Algorithm`] names them and says which to choose. Each algorithm has a script in the folder
//! `lua/`, and both give the same decision for the same history. [`SlidingLog`] keeps one log for
//! all quotas of a rule; the others keep a counter for each window. [`Count`] is the state of any
//! of them: what a store keeps for a key. It can be written to bytes and read again.

// `core.rs` decides over several states, of these and of other kinds: months (`calendar.rs`),
// permits (`permits.rs`) and keys that are held. `lockout.rs` counts failures, which hold a key.
// `period.rs` and `share.rs` have the units and the part of a quota that users write: the counting
// needs them, and `crate::rule` shows them. Quotas are in `src/quota.rs`, questions about counts in
// `src/question/`, and clocks and the places where states are kept in `src/store/`.

#[allow(clippy::module_inception)]
mod algorithm;
mod byte_reader;
pub(crate) mod calendar;
/// What Rust and the scripts agree on: formats, marks, verdicts, bounds.
#[allow(dead_code, reason = "some are for the scripts alone")]
pub(crate) mod constants {
    include!("../../lua/constants.rs");
}
pub(crate) mod core;
mod count;
mod counter;
mod counters;
mod entries;
mod fixed_window;
mod gcra;
pub(crate) mod lockout;
mod pace;
pub(crate) mod period;
mod permits;
mod quota_use;
mod refunded_ranges;
pub(crate) mod share;
mod sliding_log;
mod sliding_window;
pub(crate) mod spec;

pub use algorithm::Algorithm;
#[cfg(feature = "redis")]
pub(crate) use algorithm::MODULUS_MASK;
pub use count::{AlgorithmConfig, Count, CountError};
pub use fixed_window::FixedWindow;
pub use gcra::Gcra;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
