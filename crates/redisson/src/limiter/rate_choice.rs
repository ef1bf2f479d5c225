use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::limiter_backend::{SetMode, Sharing};
use super::rate::Rate;

/// The rate that a [`RateLimiter`](super::RateLimiter) carries.
#[derive(Debug)]
pub(super) struct OwnRate {
    pub(super) rate: Rate,
    pub(super) sharing: Sharing,
    made_at: Instant,
    /// Higher than that of all rates made before.
    number: u64,
}

impl OwnRate {
    pub(super) fn new(rate: Rate, sharing: Sharing) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            rate,
            sharing,
            made_at: Instant::now(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// The rate that this process chose for one limiter: of the limiters with a rate that were used,
/// the rate of the one made last.
///
/// The latest choice of all processes is in force, by the server's clock. So each process remembers
/// when it chose, for as long as it may use the limiter, and says so when it sets its rate again.
#[derive(Debug, Clone)]
pub(super) struct RateChoice {
    pub(super) own: Arc<OwnRate>,
    /// The number of the first limiter with this choice.
    number: u64,
    /// When it was made, by the server's clock; `None` until it was made known there.
    pub(super) chosen_at: Option<u64>,
    last_used: Instant,
}

impl RateChoice {
    /// How long a choice is remembered for limiters that were all dropped.
    const MAX_UNUSED: Duration = Duration::from_secs(3_600);

    /// A limiter with this rate is used: returns the choice of the process after that.
    pub(super) fn after_use(before: Option<Self>, own: &Arc<OwnRate>) -> Self {
        let is_kept = |before: &Self| own.number <= before.own.number || before.is_for(own);
        let mut choice = before.filter(is_kept).unwrap_or_else(|| Self {
            own: Arc::clone(own),
            number: own.number,
            chosen_at: None,
            last_used: Instant::now(),
        });
        if own.number > choice.own.number {
            choice.own = Arc::clone(own);
        }
        choice.last_used = Instant::now();
        choice
    }

    fn is_for(&self, own: &OwnRate) -> bool {
        self.own.rate == own.rate && self.own.sharing == own.sharing
    }

    pub(super) fn mode(&self) -> SetMode {
        match self.chosen_at {
            Some(at) => SetMode::ChosenAt(at),
            None => SetMode::ChosenAgo(self.own.made_at.elapsed()),
        }
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.number == other.number
    }

    /// Whether the choice has to be remembered: a process that forgot it would take its next call
    /// for its first one.
    pub(super) fn is_needed(&self) -> bool {
        let keep_alive = self.own.rate.keep_alive().unwrap_or(Duration::MAX);
        Arc::strong_count(&self.own) > 1
            || self.last_used.elapsed() < keep_alive.min(Self::MAX_UNUSED)
    }
}
