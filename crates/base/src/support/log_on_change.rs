use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Decides when to log that something fails, and that it works again: once for each change, and at
/// most once a second, however many requests notice.
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
    /// The second, counted from 1, in which a failure was logged last.
    last_second: AtomicU64,
}

impl LogOnChange {
    /// Nothing has failed.
    pub const fn new() -> Self {
        Self {
            is_failing: AtomicBool::new(false),
            is_logged: AtomicBool::new(false),
            last_second: AtomicU64::new(0),
        }
    }

    /// Notes a failure, and returns whether to log it. A failure that begins in the same second as
    /// the last logged one is logged in the next second, if it lasts.
    pub fn failed(&self) -> bool {
        // In the common case this only reads, so that threads do not compete for the cache line.
        let is_failing = self.is_failing.load(Ordering::Relaxed);
        if is_failing && self.is_logged.load(Ordering::Relaxed) {
            return false;
        }
        self.is_failing.store(true, Ordering::Relaxed);
        let is_to_log = self.is_first_in_this_second();
        if is_to_log {
            self.is_logged.store(true, Ordering::Relaxed);
        }
        is_to_log
    }

    /// Notes a success, and returns whether to log a recovery.
    pub fn worked(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
            && self.is_failing.swap(false, Ordering::Relaxed)
            && self.is_logged.swap(false, Ordering::Relaxed)
    }

    fn is_first_in_this_second(&self) -> bool {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let second = START.elapsed().as_secs() + 1;
        self.last_second.swap(second, Ordering::Relaxed) != second
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_failure_that_lasts_is_logged_in_the_end() {
        let changes = LogOnChange::default();
        assert!(changes.failed() && changes.worked());
        let started = Instant::now();
        while !changes.failed() {
            assert!(started.elapsed().as_secs() < 20, "never logged");
            std::thread::yield_now();
        }
        assert!(!changes.failed());
        assert!(changes.worked());
    }

    #[test]
    fn at_most_one_change_a_second_is_logged() {
        let changes = LogOnChange::default();
        let logged = (0..10_000).filter(|_| changes.failed() | changes.worked());
        // Each second at most a failure and its recovery, and this takes less than ten seconds.
        assert!(logged.count() <= 20);
    }
}
