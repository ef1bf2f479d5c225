//! Random pauses, so that processes do not do the same at the same time.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Up to `max`, different in every process and at every call.
pub(crate) fn up_to(max: Duration) -> Duration {
    let random = RandomState::new().hash_one(0);
    max.mul_f64((random % 1_000) as f64 / 1_000.0)
}

/// How long a request, caller or waiter that was denied sleeps before it asks again: as long as the
/// answer says, at least `min`, at most a second, because what it waits for may become free early;
/// and up to a twentieth longer, at most 5 ms, because the answer before that instant is known.
pub(crate) fn pause_before_repeat(retry_after: Duration, min: Duration) -> Duration {
    const MAX_PAUSE: Duration = Duration::from_secs(1);
    const MAX_JITTER: Duration = Duration::from_millis(5);
    let pause = retry_after.max(min).min(MAX_PAUSE);
    pause + up_to(MAX_JITTER.min(pause / 20))
}

/// One of so many, and 0 of none.
#[cfg(feature = "cluster")]
pub(crate) fn below(number: usize) -> usize {
    let random = RandomState::new().hash_one(0);
    usize::try_from(random >> 32).unwrap_or(0) % number.max(1)
}
