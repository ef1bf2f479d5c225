//! The laws that every [`Store`](crate::Store) keeps, as a suite for stores of your own.
//!
//! [`check`] runs all laws of an algorithm, each on a new store that reads a clock which the suite
//! moves. A store that takes its decisions from [`Count`](crate::algorithm::Count) passes if it
//! keeps its counts apart, whole and in order.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tidegate::test_util::{ManualClock, conformance};
//! use tidegate::{Algorithm, MemoryStore, Store};
//!
//! struct Memory {
//!     store: Arc<MemoryStore>,
//!     clock: ManualClock,
//! }
//!
//! impl conformance::Context for Memory {
//!     fn store(&self) -> Arc<dyn Store> {
//!         self.store.clone()
//!     }
//!
//!     fn advance(&self, by: Duration) {
//!         self.clock.set(self.clock.now() + by.as_micros() as u64);
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! for algorithm in Algorithm::ALL {
//!     conformance::check(algorithm, async || {
//!         let clock = ManualClock::default();
//!         clock.set(1_800_000_000_000_777);
//!         let store = Arc::new(MemoryStore::new().clock(clock.clone()));
//!         Memory { store, clock }
//!     })
//!     .await;
//! }
//! # }
//! ```

mod check;
mod decisions;
mod leases;
mod refunds;
mod subject;

pub use check::check;
pub use subject::Context;
