//! Lines of waiters: who is first asks, the others wait for their turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{MutexGuard, watch};
use tokio::time::{Instant, sleep_until};

/// The lines of one process, by name.
///
/// However many tasks wait for a thing that others have, one of them asks for it, the one that has waited
/// longest. So ten thousand waiters are as much of a load as one, and nobody is served before who came earlier.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    lines: HashMap<String, Weak<Line>>,
    /// At so many, those that nobody stands in any more are dropped.
    crowded: usize,
}

#[derive(Debug)]
pub(crate) struct Line {
    first: tokio::sync::Mutex<()>,
    /// Before this, whoever is first will not get it, and so nobody will.
    earliest: watch::Sender<Option<Instant>>,
}

/// Being first. The next one is when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    line: &'a Line,
    _first: MutexGuard<'a, ()>,
}

impl Lines {
    const FEW: usize = 64;

    /// The line of this name.
    pub(crate) fn line(&self, name: &str) -> Arc<Line> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = known.lines.get(name).and_then(Weak::upgrade) {
            return line;
        }
        if known.lines.len() >= known.crowded {
            known.lines.retain(|_, line| line.strong_count() > 0);
            known.crowded = Self::FEW.max(2 * known.lines.len());
        }
        let line = Arc::new(Line::new());
        known.lines.insert(name.to_owned(), Arc::downgrade(&line));
        line
    }
}

impl Line {
    fn new() -> Self {
        Self {
            first: tokio::sync::Mutex::default(),
            earliest: watch::Sender::new(None),
        }
    }

    /// Waits to be first, at most until then; without a bound, as long as it takes. None as soon as it is known that it
    /// would be in vain.
    pub(crate) async fn turn(&self, until: Option<Instant>) -> Option<Turn<'_>> {
        let first = match until {
            None => self.first.lock().await,
            Some(until) => {
                let mut earliest = self.earliest.subscribe();
                tokio::select! {
                    biased;
                    first = self.first.lock() => first,
                    _ = earliest.wait_for(|at| at.is_some_and(|at| at > until)) => return None,
                    () = sleep_until(until) => return None,
                }
            }
        };
        Some(Turn {
            line: self,
            _first: first,
        })
    }
}

impl Turn<'_> {
    /// Tells those behind that nobody gets it before this.
    pub(crate) fn not_before(&self, at: Instant) {
        self.line.earliest.send_replace(Some(at));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line.earliest.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_cannot_get_it_in_time_does_not_wait() {
        let lines = Lines::default();
        let line = lines.line("a");
        let began = Instant::now();
        let first = line.turn(None).await.expect("nobody is before it");
        let later = |millis| Some(began + Duration::from_millis(millis));
        tokio::join!(
            async {
                assert!(line.turn(later(100)).await.is_none());
                assert_eq!(began.elapsed(), Duration::from_millis(10));
            },
            async {
                assert!(line.turn(later(200)).await.is_some());
                assert_eq!(began.elapsed(), Duration::from_millis(60));
            },
            async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                first.not_before(later(150).expect("an instant"));
                tokio::time::sleep(Duration::from_millis(50)).await;
                drop(first);
            }
        );
    }

    #[tokio::test]
    async fn lines_that_nobody_stands_in_are_dropped() {
        let lines = Lines::default();
        let kept = lines.line("kept");
        for at in 0..10_000 {
            lines.line(&at.to_string());
        }
        assert!(lines.0.lock().expect("no panic").lines.len() <= 2 * Lines::FEW);
        assert!(Arc::ptr_eq(&kept, &lines.line("kept")));
    }
}
