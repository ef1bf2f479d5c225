use std::sync::Mutex;

use tokio::time::Instant;

use crate::sync::lock;
use crate::trace;

/// What of the denials of a rule was logged.
#[derive(Debug)]
pub(super) struct DenialSummaries(Mutex<Logged>);

#[derive(Debug)]
struct Logged {
    /// When, or when the counters were made.
    at: Instant,
    denied: u64,
    allowed: u64,
}

impl DenialSummaries {
    /// Logs what was counted since the last time, if anything was denied, and returns whether. The
    /// numbers are those of all time.
    pub(super) fn log(&self, path: &str, denied: u64, allowed: u64) -> bool {
        let mut logged = lock(&self.0);
        // Another thread may have counted later, and been here before.
        let new = denied.saturating_sub(logged.denied);
        if new == 0 {
            return false;
        }
        let at = Instant::now();
        let last = std::mem::replace(
            &mut *logged,
            Logged {
                at,
                denied,
                allowed,
            },
        );
        // A subscriber may be denied something itself.
        drop(logged);
        let (denied, allowed) = (new, allowed.saturating_sub(last.allowed));
        let seconds = (at - last.at).as_secs();
        trace::event!(info: path, denied, allowed, seconds, "requests were denied");
        true
    }
}

impl Default for DenialSummaries {
    fn default() -> Self {
        let (at, denied, allowed) = (Instant::now(), 0, 0);
        Self(Mutex::new(Logged {
            at,
            denied,
            allowed,
        }))
    }
}
