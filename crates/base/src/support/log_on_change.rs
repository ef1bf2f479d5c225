use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::sync::lock;

/// Decides when to log that something fails, and that it works again: once for each change, and at
/// most once in ten seconds, however many requests notice.
///
/// ```text
/// if changes.failed() {
///     trace::event!(warn: error, "it fails");
/// }
/// ```
#[derive(Debug, Default)]
pub struct LogOnChange {
    /// Whether it failed the last time.
    is_failing: AtomicBool,
    /// Whether the failure was logged, so that the recovery has to be logged, too.
    is_logged: AtomicBool,
    /// When a failure was logged last.
    last: Mutex<Option<Instant>>,
}

/// The shortest time between two logged failures.
const PAUSE: Duration = Duration::from_secs(10);

impl LogOnChange {
    /// Notes a failure, and returns whether to log it. A failure that begins soon after the last
    /// logged one is logged when the time is over, if it lasts.
    pub fn failed(&self) -> bool {
        // In the common case this only reads, so that threads do not compete for the cache line.
        let is_failing = self.is_failing.load(Ordering::Relaxed);
        if is_failing && self.is_logged.load(Ordering::Relaxed) {
            return false;
        }
        self.is_failing.store(true, Ordering::Relaxed);
        let is_to_log = self.may_log();
        if is_to_log {
            self.is_logged.store(true, Ordering::Relaxed);
        }
        is_to_log
    }

    /// Whether it failed the last time.
    #[inline]
    pub fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Notes a success, and returns whether to log a recovery.
    pub fn worked(&self) -> bool {
        self.is_failing()
            && self.is_failing.swap(false, Ordering::Relaxed)
            && self.is_logged.swap(false, Ordering::Relaxed)
    }

    fn may_log(&self) -> bool {
        let (mut last, now) = (lock(&self.last), Instant::now());
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn each_change_is_logged_once() {
        let changes = LogOnChange::default();
        assert!(!changes.worked(), "nothing has failed");
        assert!(changes.failed());
        assert!(!changes.failed());
        assert!(changes.worked());
        assert!(!changes.worked());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_lasts_is_logged_in_the_end() {
        let changes = LogOnChange::default();
        assert!(changes.failed() && changes.worked());
        advance(PAUSE - Duration::from_millis(1)).await;
        assert!(!changes.failed());
        advance(Duration::from_millis(1)).await;
        assert!(changes.failed());
        assert!(!changes.failed());
        assert!(changes.worked());
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_logged_seldom() {
        let changes = LogOnChange::default();
        let logged = (0..10_000).filter(|_| changes.failed() | changes.worked());
        assert_eq!(logged.count(), 1, "the first failure and its end");
    }
}
