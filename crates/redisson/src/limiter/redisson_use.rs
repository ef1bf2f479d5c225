use std::time::Duration;

use tokio::time::Instant;

/// How much clients of Redisson use a limiter that is shared with them: how many of their permits
/// counted on average, lately.
///
/// Two intervals after the last of their permits was seen, they count as gone.
///
/// The average is taken over two intervals, or [`MAX_WINDOW`](Self::MAX_WINDOW) if that is shorter.
#[derive(Debug, Default)]
pub(super) struct RedissonUse {
    average: f64,
    last: Option<Counted>,
    /// The first instant at which no permit of theirs was seen for two intervals.
    forget_at: Option<Instant>,
}

/// How many permits of Redisson count at one moment, with those that expired in the last 0.1 s: its
/// callers come back for them up to a tick of its timer later.
#[derive(Debug, Clone, Copy)]
pub(super) struct RedissonPermits {
    pub(super) permits: u64,
    /// For how long each of them counts.
    pub(super) interval: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    at: Instant,
    interval: Duration,
}

impl RedissonUse {
    /// Three ticks of Redisson's timer: callers that have not come back by then do not wait.
    const MAX_WINDOW: Duration = Duration::from_millis(300);

    /// The average. `None` if there are none: then they are counted again a quarter of
    /// an interval later.
    pub(super) fn average(&self, now: Instant) -> Option<u64> {
        if self.forget_at.is_some_and(|at| now < at) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            return Some(self.average.round() as u64);
        }
        let is_due = self
            .last
            .is_none_or(|last| now.saturating_duration_since(last.at) >= last.interval / 4);
        is_due.then_some(0)
    }

    pub(super) fn add(&mut self, counted: RedissonPermits, now: Instant) {
        let RedissonPermits { permits, interval } = counted;
        #[expect(clippy::cast_precision_loss)]
        let permits_now = permits as f64;
        match self.last {
            Some(last) if self.forget_at.is_some_and(|at| now < at) => {
                let since = now.saturating_duration_since(last.at);
                let window = Self::MAX_WINDOW.min(2 * interval);
                let weight = 1.0 - (-since.div_duration_f64(window)).exp();
                self.average += (permits_now - self.average) * weight;
            }
            _ => self.average = permits_now,
        }
        self.last = Some(Counted { at: now, interval });
        if permits > 0 {
            self.forget_at = now.checked_add(2 * interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(200);

    fn add(redisson: &mut RedissonUse, permits: u64, now: Instant) {
        let interval = INTERVAL;
        redisson.add(RedissonPermits { permits, interval }, now);
    }

    #[test]
    fn permits_of_redisson_are_forgotten_after_two_intervals() {
        let (mut redisson, began) = (RedissonUse::default(), Instant::now());
        let at = |intervals: f64| began + INTERVAL.mul_f64(intervals);
        assert_eq!(redisson.average(at(0.0)), Some(0));
        add(&mut redisson, 0, at(0.0));
        assert_eq!(redisson.average(at(0.2)), None);
        assert_eq!(redisson.average(at(0.25)), Some(0));
        add(&mut redisson, 10, at(0.25));
        assert_eq!(redisson.average(at(0.25)), Some(10));
        add(&mut redisson, 0, at(1.25));
        assert_eq!(redisson.average(at(1.25)), Some(5));
        assert_eq!(redisson.average(at(2.2)), Some(5));
        assert_eq!(redisson.average(at(2.25)), Some(0));
    }

    #[test]
    fn the_average_follows_what_is_used() {
        let (mut redisson, mut now) = (RedissonUse::default(), Instant::now());
        for permits in [10, 20].repeat(200) {
            add(&mut redisson, permits, now);
            now += INTERVAL / 20;
        }
        assert_eq!(redisson.average(now), Some(15));
    }
}
