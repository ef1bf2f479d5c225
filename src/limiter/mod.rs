//! A limiter that code asks by itself, and waits for: one budget for a whole fleet.
//!
//! See [`RateLimiter`].

mod backend;
mod batcher;
mod call;
mod client;
mod error;
mod generation;
mod in_memory;
#[cfg(feature = "redis")]
mod keys;
#[cfg(feature = "redis")]
mod on_redis;
mod pending;
mod permit;
mod permits;
mod rate;
mod rate_limiter;
mod unwanted;
mod waiting;

pub use error::{LimiterError, LimiterErrorKind};
pub use generation::Generation;
pub use in_memory::MemoryLimiters;
pub use permit::Permit;
pub use rate::{Rate, RateType};
pub use rate_limiter::{LimiterBackend, RateLimiter};
