use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// What happened under a rule since the summary before, or since its counters were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DenialSummary {
    pub(crate) denied: u64,
    pub(crate) allowed: u64,
    /// How long ago that was; `None` if it was the start.
    pub(crate) since: Option<Duration>,
}

/// Says when a summary of denials is due: at the first denial, and at the first one after
/// [`PAUSE`].
#[derive(Debug, Default)]
pub(super) struct DenialSummaries {
    last: Mutex<Option<Last>>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    at: Instant,
    denied: u64,
    allowed: u64,
}

/// The shortest time between two summaries of a rule.
const PAUSE: Duration = Duration::from_secs(10);

impl DenialSummaries {
    /// The summary, if it is due. `counts` are the denied and the allowed requests of all time.
    pub(super) fn next(&self, counts: impl FnOnce() -> (u64, u64)) -> Option<DenialSummary> {
        // A flood of denials does not wait for the lock: the one that has it makes the
        // summary. Nothing panics while it is locked.
        let mut last = self.last.try_lock().ok()?;
        let now = Instant::now();
        if last.is_some_and(|last| now.duration_since(last.at) < PAUSE) {
            return None;
        }
        let (denied, allowed) = counts();
        let before = last.replace(Last {
            at: now,
            denied,
            allowed,
        });
        Some(DenialSummary {
            denied: denied - before.map_or(0, |last| last.denied),
            allowed: allowed - before.map_or(0, |last| last.allowed),
            since: before.map(|last| now.duration_since(last.at)),
        })
    }
}

impl DenialSummary {
    /// Since when it counts, such as `10s ago`.
    pub(crate) fn since(&self) -> String {
        match self.since.map(|it| it.as_secs()) {
            None => "the start".to_owned(),
            Some(seconds @ ..120) => format!("{seconds}s ago"),
            Some(seconds @ ..7_200) => format!("{}m ago", seconds / 60),
            Some(seconds) => format!("{}h ago", seconds / 3_600),
        }
    }
}
