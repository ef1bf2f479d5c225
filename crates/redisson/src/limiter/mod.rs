//! A rate limiter that code calls directly and can wait on: one budget for a whole fleet.
//!
//! A [`RateLimiter`] has a name and a [`Rate`]. All processes that use the same Redis server and
//! the same name share its permits. Without Redis, [`MemoryLimiters`] do the same in one process.
//!
//! A job gives its limiter the rate, makes it once and clones it. Then [`acquire`] outlasts an
//! outage of Redis and the loss of its data, and a deploy with another number takes effect.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::limiter::{MemoryLimiters, Rate, RateLimiter};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tidegate::limiter::LimiterError> {
//! let rate = Rate::overall(10, Duration::from_secs(1))?;
//! let limiter = RateLimiter::new(MemoryLimiters::default(), "partner-api").rate(rate);
//!
//! limiter.acquire(10).await?; // waits until 10 permits are available
//! assert!(!limiter.try_acquire(1).await?); // does not wait
//! assert!(limiter.try_acquire_for(1, Duration::from_secs(2)).await?); // waits up to 2 s
//! # Ok(())
//! # }
//! ```
//!
//! On Redis, a limiter uses the keys of Redisson's `RRateLimiter`, so services in Java can share
//! it. See [`RateLimiter`] for how callers wait, and for what happens when a future is dropped or
//! Redis fails.
//!
//! [`acquire`]: RateLimiter::acquire

// | what | file |
// |---|---|
// | how callers acquire, wait and give back; the setters | `rate_limiter.rs` |
// | a rate; the rate that this process chose for a limiter | `rate.rs`, `rate_choice.rs` |
// | permits that are given back once | `permit.rs` |
// | whether a limiter is on Redis or in memory, and how it counts there | `limiter_backend.rs` |
// | what the callers of one process share, for each limiter | `client.rs` |
// | one call for callers with the same request | `batcher.rs` |
// | the callers that wait, in the order of their arrival | `acquire_queue.rs` |
// | limiters on Redis, and their scripts | `redis_limiters.rs`, `scripts.rs`, `lua/limiter/` |
// | how much clients of Redisson use a limiter | `redisson_use.rs` |
// | limiters in memory; one of them, without a clock | `memory_limiters.rs`, `memory_limiter.rs` |
// | errors | `error.rs` |

mod acquire_queue;
mod batcher;
mod client;
mod error;
mod limiter_backend;
mod memory_limiter;
mod memory_limiters;
mod permit;
mod rate;
mod rate_choice;
mod rate_limiter;
#[cfg(feature = "redis")]
mod redis_limiters;
mod redisson_use;
#[cfg(feature = "redis")]
mod scripts;

pub use error::{LimiterError, LimiterErrorKind};
pub use limiter_backend::{Generation, LimiterBackend};
pub use memory_limiters::MemoryLimiters;
pub use permit::Permit;
pub use rate::{Rate, RateType};
pub use rate_limiter::RateLimiter;
