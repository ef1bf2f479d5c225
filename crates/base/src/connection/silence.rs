use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How many requests are outstanding on a connection, and how long it has been silent.
///
/// Silence is measured from the connection alone. Callers that leave early do not count: an
/// impatient caller would otherwise make a healthy server look dead.
///
/// The numbers are relaxed atomics: the reconnector looks at them once in a while, and a value that
/// is one request old changes nothing. The first request after a pause begins the silence anew, so
/// that an idle connection is not taken for a silent one.
#[derive(Debug)]
pub(super) struct Activity {
    /// When the connection began.
    pub(super) start: Instant,
    outstanding: AtomicU32,
    /// The later one of two instants: the first outstanding request was sent, or the last reply
    /// arrived. In microseconds since `start`.
    silent_since: AtomicU64,
    /// Notified when a request has ended.
    changed: Notify,
}

/// A request that is outstanding until this is dropped.
#[must_use = "the request counts as outstanding only until this is dropped"]
pub(super) struct Outstanding<'a>(&'a Activity);

impl Activity {
    /// A connection on which no request is outstanding.
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            outstanding: AtomicU32::new(0),
            silent_since: AtomicU64::new(0),
            changed: Notify::new(),
        }
    }

    /// Counts a request that is sent now.
    pub(super) fn request_begins(&self, now: Instant) -> Outstanding<'_> {
        if self.outstanding.fetch_add(1, Ordering::Relaxed) == 0 {
            self.silent_since.store(self.at(now), Ordering::Relaxed);
        }
        Outstanding(self)
    }

    /// Notes that the reply to a request has arrived now: the silence is over. Nobody is notified
    /// before that request has ended.
    pub(super) fn reply_arrived(&self, now: Instant) {
        self.silent_since.store(self.at(now), Ordering::Relaxed);
    }

    /// Completes when a reply arrives on a connection that was silent.
    pub(super) async fn not_silent(&self, shortest: &ShortestTimeout) {
        self.wait_until(|| self.silent_for() < shortest.tolerated_silence())
            .await;
    }

    /// Completes when no request is outstanding.
    pub(super) async fn idle(&self) {
        self.wait_until(|| self.outstanding.load(Ordering::Relaxed) == 0)
            .await;
    }

    /// Completes when this holds. It is looked at whenever a request ends.
    async fn wait_until(&self, holds: impl Fn() -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if holds() {
                return;
            }
            changed.await;
        }
    }

    /// How long a request has been outstanding while no reply at all has arrived. Zero if no
    /// request is outstanding.
    pub(super) fn silent_for(&self) -> Duration {
        if self.outstanding.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        let since = self.silent_since.load(Ordering::Relaxed);
        Duration::from_micros(self.at(Instant::now()).saturating_sub(since))
    }

    /// An instant in microseconds since `start`.
    fn at(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.start);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }
}

/// The bounds of the silence after which another connection is made beside a silent one.
const MIN_SILENCE: Duration = Duration::from_millis(100);
/// The longest silence that is tolerated, whatever the timeouts.
pub(super) const MAX_SILENCE: Duration = Duration::from_secs(1);

/// The shortest timeout of the questions to one server. It decides how long a connection may be
/// silent.
///
/// It belongs to a node and never becomes longer again, since a store with a short timeout may ask
/// at any time. The lower bound keeps a store with a timeout of some milliseconds from replacing
/// links whenever the server has a slow moment; the upper one finds a dead link within a second
/// even if all callers are patient.
#[derive(Debug)]
pub(super) struct ShortestTimeout {
    micros: AtomicU64,
    /// Notified when the shortest timeout becomes shorter.
    changed: Notify,
}

impl Default for ShortestTimeout {
    fn default() -> Self {
        Self {
            micros: AtomicU64::new(u64::MAX),
            changed: Notify::new(),
        }
    }
}

impl ShortestTimeout {
    /// Takes account of the timeout of a question.
    pub(super) fn note(&self, timeout: Duration) {
        let micros = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        if micros < self.micros.load(Ordering::Relaxed) {
            self.micros.fetch_min(micros, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// How long a connection may be silent while a request is outstanding.
    pub(super) fn tolerated_silence(&self) -> Duration {
        let shortest = Duration::from_micros(self.micros.load(Ordering::Relaxed));
        shortest.saturating_mul(2).clamp(MIN_SILENCE, MAX_SILENCE)
    }

    /// Completes when the shortest timeout has become shorter.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_tolerated_for_two_timeouts_within_bounds() {
        let silence_at = |millis| {
            let shortest = ShortestTimeout::default();
            shortest.note(Duration::from_millis(millis));
            shortest.tolerated_silence().as_millis()
        };
        assert_eq!(silence_at(1), 100);
        assert_eq!(silence_at(200), 400);
        assert_eq!(silence_at(60_000), 1_000);
    }
}
