use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// An instant by both clocks of the host. A paused machine stops one of them, and a step moves the
/// other: of the two, the one that has advanced more is believed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    monotonic: Instant,
    /// `None` for stores that go by tokio's clock alone.
    wall: Option<SystemTime>,
}

/// The clocks that leases end by.
#[derive(Debug, Clone, Copy)]
pub(super) enum Clocks {
    Both,
    /// Tokio's alone, which tests pause.
    #[cfg(feature = "test-util")]
    Tokio,
}

impl Moment {
    pub(super) fn now(clocks: Clocks) -> Self {
        Self {
            monotonic: Instant::now(),
            wall: match clocks {
                Clocks::Both => Some(SystemTime::now()),
                #[cfg(feature = "test-util")]
                Clocks::Tokio => None,
            },
        }
    }

    /// How long ago `earlier` was. A clock that went back has not advanced.
    pub(super) fn since(self, earlier: Self) -> Duration {
        let monotonic = self.monotonic.saturating_duration_since(earlier.monotonic);
        let wall = self.wall.zip(earlier.wall);
        let wall = wall.and_then(|(now, earlier)| now.duration_since(earlier).ok());
        monotonic.max(wall.unwrap_or_default())
    }

    /// The same instant by the monotonic clock, and so much later.
    pub(super) fn plus(self, duration: Duration) -> Instant {
        self.monotonic + duration
    }
}

#[cfg(test)]
impl Moment {
    /// A moment later by the two clocks.
    pub(super) fn after(self, monotonic: Duration, wall: Duration) -> Self {
        Self {
            monotonic: self.monotonic + monotonic,
            wall: self.wall.map(|now| now + wall),
        }
    }
}
