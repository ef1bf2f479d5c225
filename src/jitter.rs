//! What keeps processes from doing the same at the same time.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Up to `most`, different in every process and at every call.
pub(crate) fn up_to(most: Duration) -> Duration {
    let random = RandomState::new().hash_one(0);
    most.mul_f64((random % 1_000) as f64 / 1_000.0)
}

/// One of so many, and 0 of none.
#[cfg(feature = "cluster")]
pub(crate) fn below(number: usize) -> usize {
    let random = RandomState::new().hash_one(0);
    usize::try_from(random >> 32).unwrap_or(0) % number.max(1)
}
