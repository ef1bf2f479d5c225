use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::clock::nanos;

/// An instant by both clocks of the host, in nanoseconds. A paused machine stops one of them, and a
/// step moves the other: of the two, the one that has advanced more is believed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Since the clocks were set up.
    monotonic: u64,
    /// Since the epoch; always 0 for stores that go by tokio's clock alone.
    wall: u64,
}

/// The clocks that leases end by.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Clocks {
    begin: Instant,
    /// Tokio's clock alone, which tests pause, or the wall clock as well.
    with_wall: bool,
}

impl Clocks {
    pub(in crate::store) fn both() -> Self {
        Self {
            begin: Instant::now(),
            with_wall: true,
        }
    }

    #[cfg(feature = "test-util")]
    pub(in crate::store) fn tokio() -> Self {
        Self {
            with_wall: false,
            ..Self::both()
        }
    }

    pub(super) fn now(&self) -> Moment {
        let wall = match self.with_wall {
            true => SystemTime::now().duration_since(UNIX_EPOCH),
            false => Ok(Duration::ZERO),
        };
        Moment {
            monotonic: nanos(self.begin.elapsed()),
            wall: wall.map_or(0, nanos),
        }
    }

    /// The moment so many nanoseconds after another one, by the monotonic clock.
    pub(super) fn after(&self, moment: Moment, nanos: u64) -> Instant {
        let since_begin = moment.monotonic.saturating_add(nanos);
        self.begin + Duration::from_nanos(since_begin)
    }
}

impl Moment {
    /// How many nanoseconds ago `earlier` was. A clock that went back has not advanced.
    pub(super) const fn since(self, earlier: Self) -> u64 {
        let monotonic = self.monotonic.saturating_sub(earlier.monotonic);
        let wall = self.wall.saturating_sub(earlier.wall);
        if wall > monotonic { wall } else { monotonic }
    }
}

#[cfg(test)]
impl Moment {
    /// A moment later by the two clocks.
    pub(super) fn later(self, monotonic: Duration, wall: Duration) -> Self {
        Self {
            monotonic: self.monotonic + nanos(monotonic),
            wall: self.wall + nanos(wall),
        }
    }
}
