//! For tests: a clock that is moved by hand, and the [laws](conformance) that every store keeps.
//!
//! ```
//! use tidegate::MemoryStore;
//! use tidegate::test_util::ManualClock;
//!
//! let clock = ManualClock::default();
//! let store = MemoryStore::new().clock(clock.clone());
//! clock.set(1_000_000);
//! # let _ = store;
//! ```

pub mod conformance;

pub use crate::clock::ManualClock;
