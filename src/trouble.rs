//! When to tell of something that fails, and of its end.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Something that fails and works again: each is to be told once for each time, and not more than once a second,
/// however many requests find out.
///
/// ```text
/// if trouble.begins() {
///     trace::event!(warn: error, "it fails");
/// }
/// ```
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// Whether it failed last.
    failing: AtomicBool,
    /// Whether that was told, so that its end is of interest.
    told: AtomicBool,
    /// The second, counted from 1, in which something was told last.
    second: AtomicU64,
}

impl Trouble {
    /// It fails. Whether that is to be told: what began too soon after the last word is told of in the next second, if it
    /// lasts.
    pub(crate) fn begins(&self) -> bool {
        // The common case only reads, so that requests do not fight for the line.
        let failing = self.failing.load(Ordering::Relaxed);
        if failing && self.told.load(Ordering::Relaxed) {
            return false;
        }
        self.failing.store(true, Ordering::Relaxed);
        let tell = self.may_tell();
        if tell {
            self.told.store(true, Ordering::Relaxed);
        }
        tell
    }

    /// It works. Whether that is to be told.
    pub(crate) fn ends(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
            && self.failing.swap(false, Ordering::Relaxed)
            && self.told.swap(false, Ordering::Relaxed)
    }

    fn may_tell(&self) -> bool {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let second = START.elapsed().as_secs() + 1;
        self.second.swap(second, Ordering::Relaxed) != second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_for_each_time() {
        let trouble = Trouble::default();
        assert!(!trouble.ends(), "nothing has failed");
        assert!(trouble.begins());
        assert!(!trouble.begins());
        assert!(trouble.ends());
        assert!(!trouble.ends());
    }

    #[test]
    fn what_lasts_is_told_in_the_end() {
        let trouble = Trouble::default();
        assert!(trouble.begins() && trouble.ends());
        let started = Instant::now();
        while !trouble.begins() {
            assert!(started.elapsed().as_secs() < 20, "never told");
            std::thread::yield_now();
        }
        assert!(!trouble.begins());
        assert!(trouble.ends());
    }

    #[test]
    fn an_end_is_told_only_of_what_was() {
        let trouble = Trouble::default();
        let told = (0..10_000).filter(|_| trouble.begins() | trouble.ends());
        // Each second at most a beginning and its end, and this takes no ten seconds.
        assert!(told.count() <= 20);
    }
}
