use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

use crate::sync::lock;

/// A network may forget a connection that was idle for longer than this, and tell nobody.
const MAX_AGE: Duration = Duration::from_secs(30);

/// An instant by two clocks: while a host freezes a process, the monotonic one may stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment(Instant, SystemTime);

impl Moment {
    pub(super) fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    /// Whether it is more than 30 s ago by either clock.
    pub(super) fn is_old(self) -> bool {
        let real = self.1.elapsed().unwrap_or_default();
        real.max(self.0.elapsed()) > MAX_AGE
    }
}

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
    /// When the request was sent that was answered last, and how long that took: a reply may be
    /// there for long before a frozen process reads it.
    last_reply: Mutex<(Moment, Duration)>,
    /// Notified when a request has ended.
    changed: Notify,
    /// Notified when something waits for a proof that the connection is alive.
    pub(super) doubted: Notify,
}

/// A request that is outstanding until this is dropped.
#[must_use = "the request counts as outstanding only until this is dropped"]
pub(super) struct Outstanding<'a>(&'a Activity, Moment);

impl Activity {
    /// A connection on which no request is outstanding, and whose last round trip took so long.
    pub(super) fn new(took: Duration) -> Self {
        Self {
            start: Instant::now(),
            outstanding: AtomicU32::new(0),
            silent_since: AtomicU64::new(0),
            last_reply: Mutex::new((Moment::now(), took)),
            changed: Notify::new(),
            doubted: Notify::new(),
        }
    }

    /// Counts a request that is sent now.
    pub(super) fn request_begins(&self, now: Instant) -> Outstanding<'_> {
        if self.outstanding.fetch_add(1, Ordering::Relaxed) == 0 {
            self.silent_since.store(self.at(now), Ordering::Relaxed);
        }
        Outstanding(self, Moment(now, SystemTime::now()))
    }

    /// Whether the last reply is so old that the connection may be forgotten.
    pub(super) fn is_old(&self) -> bool {
        let (last, _) = *lock(&self.last_reply);
        last.is_old()
    }

    /// The same before something is sent that is not to be lost. If so, the reconnector has the
    /// connection proven or replaced, and publishes the state of the link again.
    pub(super) fn needs_proof(&self) -> bool {
        let told = self.is_old().then(|| self.doubted.notify_one());
        told.is_some()
    }

    /// How long a reply is waited for that is to prove the connection.
    pub(super) fn max_proof(&self, shortest: &ShortestTimeout) -> Duration {
        let (_, took) = *lock(&self.last_reply);
        (2 * took).max(MIN_PROOF).min(shortest.get() / 5)
    }

    /// Completes when a reply arrives on a connection that was silent, or whose last one is old.
    pub(super) async fn not_silent(&self, shortest: &ShortestTimeout) {
        self.wait_until(|| self.silent_for() < shortest.tolerated_silence() && !self.is_old())
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

impl Outstanding<'_> {
    /// Notes that the reply has arrived now: the silence is over. Nobody is notified before the
    /// request has ended.
    pub(super) fn reply_arrived(&self, now: Instant) {
        let Self(activity, asked) = self;
        let silent_since = &activity.silent_since;
        silent_since.store(activity.at(now), Ordering::Relaxed);
        *lock(&activity.last_reply) = (*asked, now - asked.0);
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }
}

/// How long a reply is waited for that is to prove a connection, unless its round trips are long.
const MIN_PROOF: Duration = Duration::from_millis(10);
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
        let shortest = self.get();
        shortest.saturating_mul(2).clamp(MIN_SILENCE, MAX_SILENCE)
    }

    fn get(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
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
    fn a_moment_is_old_by_either_clock() {
        let Moment(monotonic, real) = Moment::now();
        let is_old = |by_monotonic: u64, by_real: u64| {
            let ago = [by_monotonic, by_real].map(Duration::from_secs);
            Moment(monotonic - ago[0], real - ago[1]).is_old()
        };
        assert!(!is_old(29, 29));
        assert!(is_old(31, 0));
        assert!(is_old(0, 31), "the other one stood");
        // The real-time clock was set back.
        assert!(!Moment(monotonic, real + MAX_AGE).is_old());
        assert!(Moment(monotonic - 2 * MAX_AGE, real + MAX_AGE).is_old());
    }

    /// It may have been there before this process was frozen.
    #[test]
    fn a_reply_is_as_old_as_its_request() {
        let (activity, now) = (Activity::new(Duration::ZERO), Instant::now());
        for (ago, is_old) in [(MAX_AGE + MIN_PROOF, true), (MIN_PROOF, false)] {
            activity.request_begins(now - ago).reply_arrived(now);
            assert_eq!(activity.is_old(), is_old, "{ago:?}");
        }
    }

    /// Ten milliseconds; two round trips where that is longer; a fifth of the time-out at most.
    #[test]
    fn a_proof_is_waited_for_by_the_last_round_trip_and_the_timeout() {
        let shortest = ShortestTimeout::default();
        let wait = |took, timeout| {
            shortest.note(Duration::from_millis(timeout));
            let activity = Activity::new(Duration::from_millis(took));
            activity.max_proof(&shortest).as_millis()
        };
        assert_eq!(wait(40, 500), 80);
        assert_eq!(wait(0, 200), 10);
        assert_eq!(wait(40, 200), 40);
        assert_eq!(wait(8, 50), 10);
        assert_eq!(wait(8, 20), 4);
    }

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
