//! Where the counts are kept.
//!
//! A [`Store`] answers takes. [`MemoryStore`] counts for one process, `RedisStore` for a fleet;
//! both give the same answers to the same questions. The layer asks a store for you; code can ask
//! one, too:
//!
//! ```
//! use std::sync::Arc;
//! use tidegate::{Key, MemoryStore, Quota, Rule, Store, Take};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let rule = Arc::new(Rule::new("export", [Quota::per_hour(10)])?);
//! let take = Take::new(rule, Key::from("alice")).with_cost(4);
//!
//! let decision = store.take(&take).await?;
//! assert!(decision.is_allowed());
//! assert_eq!(store.peek(&take).await?.remaining(), 6);
//! store.reset(&take).await?;
//! assert_eq!(store.peek(&take).await?.remaining(), 10);
//! # Ok(())
//! # }
//! ```
//!
//! [`Resilient`] is the door to a store of any kind: it bounds the time of an answer, leaves a
//! store alone that fails, answers denied keys by itself, and decides by a share of the limits
//! while the store is away. A custom store implements [`Store`], may count by
//! [`Count`](crate::algorithm::Count) under the name [`Ask::name`](crate::store::Ask::name), and is
//! tested by the suite in `test_util::conformance` (feature `test-util`).

// Here are the stores, those around other stores, and two traits: `store.rs`, and `fleet.rs` for
// what processes share, which `src/fleet/` implements for Redis. Charges, permits, questions and
// errors are only shown here: see `src/charge/`, `src/question/` and `src/error.rs`. A store knows
// no rule and no request, and connections are in `crates/base/src/connection/`.

mod breaker;
pub(crate) mod capabilities;
mod denial_cache;
mod fallback;
mod fleet;
mod guarded;
mod holds;
pub(crate) mod memory;
mod path_stores;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod resilient;
pub(crate) mod store;

pub use capabilities::{Capabilities, Condition, ServerId};
pub use fleet::{Fleet, FleetState, OperatorKey, OperatorKind, PeerReport, ProcessReport};
pub use memory::MemoryStore;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
pub use resilient::Resilient;
pub use store::{Store, StoreFuture};

pub use crate::charge::{
    Attempts, Charge, Charges, Meter, Permit, Settled, SettledBody, WatchedBody,
};
pub use crate::error::{StoreError, StoreErrorKind};
pub use crate::question::{Ask, Change, CountAsk};

pub(crate) use store::{default_store, shared};
