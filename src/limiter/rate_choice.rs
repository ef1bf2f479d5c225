use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::limiter_backend::Sharing;
use super::rate::Rate;

/// The rate that a [`RateLimiter`](super::RateLimiter) carries.
#[derive(Debug)]
pub(super) struct OwnRate {
    pub(super) rate: Rate,
    made_at: Instant,
    /// Higher than that of all rates made before.
    number: u64,
}

impl OwnRate {
    pub(super) fn new(rate: Rate) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            rate,
            made_at: Instant::now(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// The rate that this process chose for one limiter: of the limiters with a rate that were used,
/// the rate of the one made last.
///
/// The latest choice of all processes stands, by the server's clock. So each process remembers when
/// it chose, for as long as it may use the limiter, and says so when it sets its rate again.
#[derive(Debug, Default)]
pub(super) struct RateChoice(Option<Choice>);

#[derive(Debug)]
struct Choice {
    own: Arc<OwnRate>,
    sharing: Sharing,
    /// The number of the first limiter with this choice.
    number: u64,
    /// When it was made, by the server's clock; `None` until it was made known there.
    chosen_at: Option<u64>,
    last_used: Instant,
}

/// A choice for [`Limiters::ensure`](super::limiter_backend::Limiters::ensure).
#[derive(Debug, Clone, Copy)]
pub(super) struct ChosenRate {
    pub(super) rate: Rate,
    #[cfg_attr(not(feature = "redis"), expect(dead_code))]
    pub(super) sharing: Sharing,
    pub(super) chosen: Chosen,
    number: u64,
}

/// When a process chose its rate.
#[derive(Debug, Clone, Copy)]
pub(super) enum Chosen {
    /// The process chose it this long ago, and has never set it before.
    Ago(Duration),
    /// At this time, as the server said when the rate was set.
    At(u64),
}

impl RateChoice {
    /// How long a choice is remembered for limiters that were all dropped.
    const MAX_UNUSED: Duration = Duration::from_secs(3_600);

    /// A limiter with this rate is used.
    pub(super) fn used(&mut self, own: &Arc<OwnRate>, sharing: Sharing) {
        let last_used = Instant::now();
        match &mut self.0 {
            Some(choice) if own.number <= choice.own.number => choice.last_used = last_used,
            Some(choice) if own.rate == choice.own.rate && sharing == choice.sharing => {
                choice.own = Arc::clone(own);
                choice.last_used = last_used;
            }
            choice => {
                *choice = Some(Choice {
                    own: Arc::clone(own),
                    sharing,
                    number: own.number,
                    chosen_at: None,
                    last_used,
                });
            }
        }
    }

    pub(super) fn get(&self) -> Option<ChosenRate> {
        let choice = self.0.as_ref()?;
        Some(ChosenRate {
            rate: choice.own.rate,
            sharing: choice.sharing,
            chosen: match choice.chosen_at {
                Some(at) => Chosen::At(at),
                None => Chosen::Ago(choice.own.made_at.elapsed()),
            },
            number: choice.number,
        })
    }

    /// The server knows this choice, by this time.
    pub(super) fn is_known(&mut self, chosen: &ChosenRate, at: u64) {
        if let Some(choice) = &mut self.0
            && choice.number == chosen.number
        {
            choice.chosen_at = Some(at);
        }
    }

    /// Whether the choice has to be remembered: a process that forgot it would take its next call
    /// for its first one.
    pub(super) fn is_needed(&self) -> bool {
        self.0.as_ref().is_some_and(|choice| {
            let keep_alive = choice.own.rate.keep_alive().unwrap_or(Duration::MAX);
            Arc::strong_count(&choice.own) > 1
                || choice.last_used.elapsed() < keep_alive.min(Self::MAX_UNUSED)
        })
    }
}
