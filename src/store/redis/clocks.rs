use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::connection::Reconnecting;
#[cfg(feature = "cluster")]
use crate::connection::{SLOTS, slot};

/// What this process knows of its servers' clocks, so that it can tell a script until when its answer is of use.
#[derive(Debug)]
pub(super) struct Clocks {
    /// One for a single server. The servers of a cluster have a clock each, and slots move between them: one a slot.
    known: Box<[Known]>,
}

#[derive(Debug)]
struct Known {
    /// Microseconds that the server's clock is ahead of this process's, as far as its answers tell.
    ahead: AtomicI64,
    /// In which second of this process's clock there was an answer last.
    heard: AtomicU64,
}

/// What is known of one server's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerClock<'a>(&'a Known);

/// A clock may be set while nobody looks, and a master may be another one: after so many seconds nothing is known any more.
const LASTS: u64 = 60;

/// Nothing was heard yet.
const UNKNOWN: i64 = i64::MIN;

impl Clocks {
    pub(super) fn of_one_server() -> Self {
        Self::some(1)
    }

    pub(super) fn of(connection: &Reconnecting) -> Self {
        #[cfg(feature = "cluster")]
        if connection.is_cluster() {
            return Self::some(SLOTS);
        }
        let _ = connection;
        Self::of_one_server()
    }

    fn some(number: usize) -> Self {
        let known = (0..number).map(|_| Known {
            ahead: AtomicI64::new(UNKNOWN),
            heard: AtomicU64::new(0),
        });
        Self {
            known: known.collect(),
        }
    }

    /// The clock of the server that has this key.
    pub(super) fn at(&self, key: &str) -> ServerClock<'_> {
        let _ = key;
        #[cfg(feature = "cluster")]
        if self.known.len() == SLOTS {
            return ServerClock(&self.known[usize::from(slot(key.as_bytes()))]);
        }
        ServerClock(&self.known[0])
    }
}

impl ServerClock<'_> {
    /// Whether there was an answer within a minute.
    pub(super) fn is_known(self, now: Instant) -> bool {
        let heard = self.0.heard.load(Ordering::Relaxed);
        heard > 0 && seconds(now) <= heard + LASTS
    }

    /// An instant by the server's clock, in microseconds; not later than it really is.
    pub(super) fn at(self, instant: Instant) -> Option<u64> {
        match self.0.ahead.load(Ordering::Relaxed) {
            UNKNOWN => None,
            ahead => Some(u64::try_from(local(instant).saturating_add(ahead)).unwrap_or(0)),
        }
    }

    /// The server's clock showed `now` at some instant between these two.
    ///
    /// It is ahead by no less than if that was when the answer came. The most that any answer proves is kept, until an
    /// answer disproves it: then the clock was set back, or is the slower one.
    pub(super) fn learn(self, now: u64, asked: Instant, answered: Instant) {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let (least, most) = (
            now.saturating_sub(local(answered)),
            now.saturating_sub(local(asked)),
        );
        let known = self.0.ahead.load(Ordering::Relaxed);
        let heard = seconds(answered);
        if least > known || most < known || !self.is_known(asked) {
            self.0.ahead.store(least, Ordering::Relaxed);
        }
        // Not written by each of many answers.
        if self.0.heard.load(Ordering::Relaxed) != heard {
            self.0.heard.store(heard, Ordering::Relaxed);
        }
    }
}

/// Counted from 1: in none of them was nothing heard.
fn seconds(instant: Instant) -> u64 {
    1 + u64::try_from(local(instant) / 1_000_000).unwrap_or(0)
}

/// Microseconds of this process's own clock.
fn local(instant: Instant) -> i64 {
    /// Before all instants that are asked for, by a day.
    static EPOCH: LazyLock<Instant> = LazyLock::new(|| {
        let now = Instant::now();
        now.checked_sub(Duration::from_secs(86_400)).unwrap_or(now)
    });
    let since = instant.saturating_duration_since(*EPOCH);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// A clock that was asked at 0, 10, 20 ms ... and answered each time after so many.
    fn asked(answers: &[(u64, u32)]) -> (Clocks, Instant) {
        let clocks = Clocks::of_one_server();
        let start = Instant::now();
        for (at, (now, took)) in answers.iter().enumerate() {
            let sent = start + 10 * MILLISECOND * u32::try_from(at).expect("few");
            clocks.at("").learn(*now, sent, sent + MILLISECOND * *took);
        }
        (clocks, start)
    }

    fn check(answers: &[(u64, u32)], start_is: u64) {
        let (clocks, start) = asked(answers);
        assert_eq!(clocks.at("").at(start), Some(start_is), "{answers:?}");
    }

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        assert_eq!(Clocks::of_one_server().at("").at(Instant::now()), None);
    }

    #[test]
    fn an_instant_is_not_taken_for_a_later_one() {
        // The clock showed 5,000,000 us within 4 ms after the start: at the start, not less than 4 ms before.
        check(&[(5_000_000, 4)], 4_996_000);
    }

    #[test]
    fn quick_answers_tell_most() {
        check(&[(5_000_000, 4), (5_010_000, 1)], 4_999_000);
        check(&[(5_000_000, 1), (5_010_000, 4)], 4_999_000);
    }

    #[test]
    fn a_clock_that_was_set_is_believed() {
        check(&[(5_000_000, 1), (9_000_000, 1)], 8_989_000);
        check(&[(5_000_000, 1), (2_000_000, 1)], 1_989_000);
    }

    #[test]
    fn what_was_long_ago_is_not_known() {
        let (clocks, start) = asked(&[(5_000_000, 1)]);
        assert!(!Clocks::of_one_server().at("").is_known(start));
        assert!(clocks.at("").is_known(start + Duration::from_secs(LASTS)));
        let later = start + Duration::from_secs(LASTS + 2);
        assert!(!clocks.at("").is_known(later));
        // Then a slower answer says more than a quick one of long ago.
        clocks
            .at("")
            .learn(67_000_000, later, later + 100 * MILLISECOND);
        assert_eq!(clocks.at("").at(later), Some(66_900_000));
    }

    /// By a part of what answers take: unnoticed, and harmless. By more: noticed.
    #[test]
    fn a_slower_clock_is_followed() {
        check(&[(5_000_000, 1), (5_009_500, 1)], 4_999_000);
        check(&[(5_000_000, 1), (5_008_900, 1)], 4_997_900);
    }
}
