use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// An estimate of one server's clock, from which questions get their deadlines in the server's
/// time.
///
/// The estimate is never ahead of the server's clock, so no question is executed after its
/// deadline.
///
/// ```text
/// this process      asked ------------------------ answered
/// the server                      now
/// ahead             at most now - asked,  at least now - answered
/// ```
///
/// The error is the time that the reply needed, in the direction that is safe: a question may be
/// refused early, and is then sent again with a better estimate. The clock of the process is
/// monotonic, so setting the host's clock changes nothing: only the server's clock decides. Each
/// link has a clock of its own, because another server may answer on the next one.
#[derive(Debug)]
pub struct ServerClock {
    /// How far the server's clock is ahead of this process's, in microseconds: the largest lower
    /// bound that its replies have proved.
    ahead: AtomicI64,
}

impl ServerClock {
    /// An estimate from one reply: the server's clock showed `now`, in microseconds since 1970, at
    /// some instant between `asked` and `answered`.
    pub fn new(now: u64, asked: Instant, answered: Instant) -> Self {
        let clock = Self {
            ahead: AtomicI64::new(i64::MIN),
        };
        clock.learn(now, asked, answered);
        clock
    }

    /// What the server's clock shows at this instant, in microseconds, or less.
    pub fn at(&self, instant: Instant) -> u64 {
        let ahead = self.ahead.load(Ordering::Relaxed);
        u64::try_from(local(instant).saturating_add(ahead)).unwrap_or(0)
    }

    /// Corrects the estimate by a reply: the server's clock showed `now` at some instant between
    /// `asked` and `answered`.
    ///
    /// If that instant was `answered`, the server's clock is ahead by the least possible amount.
    /// The largest of these lower bounds is kept until a reply disproves it: then the server's
    /// clock was set back, or runs slower than this process's.
    pub fn learn(&self, now: u64, asked: Instant, answered: Instant) {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let min = now.saturating_sub(local(answered));
        let max = now.saturating_sub(local(asked));
        let known = self.ahead.load(Ordering::Relaxed);
        if min > known || max < known {
            self.ahead.store(min, Ordering::Relaxed);
        }
    }
}

/// An instant in microseconds of this process's clock.
fn local(instant: Instant) -> i64 {
    /// Earlier than every instant that is converted.
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

    /// Each answer is what the server's clock showed, and how many milliseconds it took. The clock
    /// was asked at 0, 10, 20 ms, ...
    fn check(answers: &[(u64, u32)], expected_at_start: u64) {
        let start = Instant::now();
        let mut clock: Option<ServerClock> = None;
        for (at, (now, took)) in (0..).zip(answers) {
            let asked = start + 10 * MILLISECOND * at;
            let answered = asked + MILLISECOND * *took;
            match &clock {
                Some(clock) => clock.learn(*now, asked, answered),
                None => clock = Some(ServerClock::new(*now, asked, answered)),
            }
        }
        let clock = clock.expect("there is at least one answer");
        assert_eq!(clock.at(start), expected_at_start, "{answers:?}");
    }

    #[test]
    fn an_instant_is_never_taken_for_a_later_one() {
        // The clock showed 5,000,000 us within 4 ms after the start. At the start it showed up to 4
        // ms less.
        check(&[(5_000_000, 4)], 4_996_000);
    }

    #[test]
    fn quick_answers_give_the_best_estimate() {
        check(&[(5_000_000, 4), (5_010_000, 1)], 4_999_000);
        check(&[(5_000_000, 1), (5_010_000, 4)], 4_999_000);
    }

    #[test]
    fn a_clock_that_was_set_is_believed() {
        check(&[(5_000_000, 1), (9_000_000, 1)], 8_989_000);
        check(&[(5_000_000, 1), (2_000_000, 1)], 1_989_000);
    }

    /// A delay shorter than the time of an answer is not noticed, and harmless.
    #[test]
    fn a_slower_clock_is_followed() {
        check(&[(5_000_000, 1), (5_009_500, 1)], 4_999_000);
        check(&[(5_000_000, 1), (5_008_900, 1)], 4_997_900);
    }
}
