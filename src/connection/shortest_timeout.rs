use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

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
