//! The limit that all keep, and for how long they are watched.

use std::time::Duration;

/// At most so many units ...
pub(crate) const MAX: u64 = 100;

/// ... in any window of this length.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// GCRA is shown a second time, with so many units together instead of [`MAX`].
pub(crate) const SMALL_BURST: u64 = 20;

/// How long the traffics last: three windows, so that what repeats is seen to repeat.
pub(crate) const SPAN: Duration = Duration::from_secs(30);

/// Microseconds: the unit of the virtual clock.
pub(crate) const fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}
