//! Random parts of pauses, so that processes do not act at the same time.

use std::time::Duration;

/// A random duration from zero to `max`.
pub fn up_to(max: Duration) -> Duration {
    max.mul_f64(fastrand::f64())
}
