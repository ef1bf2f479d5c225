//! Where the counts are kept.
//!
//! A [`Store`] answers takes. [`MemoryStore`] counts for one process, `RedisStore` for a fleet;
//! both give the same answers to the same questions. [`Timeout`], [`InFlight`], [`CircuitBreaker`]
//! and [`Fallback`] are stores around another one, of any kind, and [`Resilient`](crate::Resilient) puts them
//! together.

mod arc;
mod around;
mod breaker;
mod charge;
mod fallback;
mod in_flight;
mod key_name;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod resilient;
pub(crate) mod store;
mod store_ext;
mod store_future;
pub(crate) mod take;
mod timeout;

pub use breaker::CircuitBreaker;
pub use charge::{Charge, Charges};
pub use fallback::Fallback;
pub use in_flight::InFlight;
pub use key_name::KeyName;
pub use store_ext::StoreExt;
pub use store_future::StoreFuture;
pub use take::TakePart;
pub use timeout::Timeout;

pub use crate::error::StoreErrorKind;

pub(crate) use arc::shared;
pub(crate) use memory::MemoryStore;
pub(crate) use store::Store;
pub(crate) use store_ext::single;
pub(crate) use take::Take;
