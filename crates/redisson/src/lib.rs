//! The rate limiter and the lock of the crate `tidegate`, in the layout that
//! [Redisson](https://github.com/redisson/redisson) gives them in Redis. They know no rule, no
//! layer and no store. Its names may change with any version: users depend on `tidegate`, which
//! re-exports both modules.
#![cfg_attr(
    feature = "limiter",
    doc = "\n[`limiter`]: `RateLimiter`, a budget that code asks for permits and waits for, in memory or on Redis."
)]
#![cfg_attr(
    feature = "lock",
    doc = "\n[`lock`]: `Lock`, which at most one holder in the whole fleet has at a time."
)]

#[cfg(any(feature = "limiter", feature = "lock"))]
mod jitter;
#[cfg(feature = "limiter")]
pub mod limiter;
#[cfg(feature = "lock")]
pub mod lock;

#[cfg(feature = "redis")]
use tidegate_base::connection;
#[cfg(feature = "limiter")]
use tidegate_base::{clock, deadline, log_on_change, trace};
#[cfg(any(feature = "limiter", feature = "lock"))]
use tidegate_base::{error, swept_map, sync};

/// The name in braces. A name that contains `{` is left as it is, as Redisson leaves it.
///
/// A cluster chooses the slot of a key by the text between the first braces in its name, and one
/// script call uses keys of one slot only.
#[cfg(feature = "redis")]
fn tagged(name: &str) -> String {
    if name.contains('{') {
        name.to_owned()
    } else {
        format!("{{{name}}}")
    }
}
