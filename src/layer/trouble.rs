use std::fmt::Display;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::trace;

/// Tells the log when decisions cease to be made, and when they are made again: once for each time,
/// and not more than once a second, however many requests there are.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Whether the last decision failed.
    failing: AtomicBool,
    /// Whether that was told, so that its end is of interest.
    told: AtomicBool,
    /// The second, counted from 1, in which something was told last.
    second: AtomicU64,
}

impl Trouble {
    /// There is no decision.
    pub(super) fn begins(&self, path: &str, error: &dyn Display) {
        if self.failing.swap(true, Ordering::Relaxed) || !self.may_tell() {
            return;
        }
        self.told.store(true, Ordering::Relaxed);
        let error = error.to_string();
        trace::event!(warn: path, error, "no decisions: the error callbacks answer");
    }

    /// There is a decision.
    pub(super) fn ends(&self, path: &str) {
        // The common case only reads, so that requests do not fight for the line.
        if !self.failing.load(Ordering::Relaxed) {
            return;
        }
        let ended = self.failing.swap(false, Ordering::Relaxed);
        if ended && self.told.swap(false, Ordering::Relaxed) {
            trace::event!(warn: path, "decisions are made again");
        }
    }

    fn may_tell(&self) -> bool {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let second = START.elapsed().as_secs() + 1;
        self.second.swap(second, Ordering::Relaxed) != second
    }
}
