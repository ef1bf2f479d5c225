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
    /// When the last one was, with the denied and the allowed requests up to then.
    last: Mutex<Option<(Instant, u64, u64)>>,
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
        let since = last.map(|(at, ..)| now.duration_since(at));
        if since.is_some_and(|since| since < PAUSE) {
            return None;
        }
        let (denied, allowed) = counts();
        let (_, before_denied, before_allowed) =
            last.replace((now, denied, allowed)).unwrap_or((now, 0, 0));
        Some(DenialSummary {
            denied: denied - before_denied,
            allowed: allowed - before_allowed,
            since,
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
