//! Lines of waiters: who is first asks, the others wait for their turn.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{MutexGuard, Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::error::StoreError;

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

#[derive(Debug, Default)]
pub(crate) struct Line {
    first: tokio::sync::Mutex<()>,
    outlook: Mutex<Outlook>,
    /// Who is first could not ask.
    failed: Notify,
}

/// What is known of when it can be had.
#[derive(Debug, Default)]
struct Outlook {
    /// Before this, whoever is first will not get it, and so nobody will.
    earliest: Option<Instant>,
    /// Those who wait up to an instant, to be told when that is before the earliest.
    bounded: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    number: u64,
    /// Why the last one who was first could not ask.
    failure: Option<StoreError>,
}

/// Being first. The next one is when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    line: &'a Line,
    _first: MutexGuard<'a, ()>,
}

/// One who waits up to an instant, for as long as this is not dropped.
struct Bounded<'a> {
    line: &'a Line,
    key: (Instant, u64),
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
            let crowded = known.crowded;
            known.lines.shrink_to(crowded);
        }
        let line = Arc::new(Line::default());
        known.lines.insert(name.to_owned(), Arc::downgrade(&line));
        line
    }
}

impl Line {
    /// Waits to be first, at most until then; without a bound, as long as it takes. None as soon as it is known that it
    /// would be in vain.
    ///
    /// # Errors
    ///
    /// What [`Turn::failed`] is told while this waits.
    pub(crate) async fn turn(
        &self,
        until: Option<Instant>,
    ) -> Result<Option<Turn<'_>>, StoreError> {
        let mut failed = pin!(self.failed.notified());
        failed.as_mut().enable();
        let (_bounded, in_vain) = match until.map(|until| self.wait_until(until)) {
            Some(None) => return Ok(None),
            Some(Some((bounded, in_vain))) => (Some(bounded), Some(in_vain)),
            None => (None, None),
        };
        let late = async {
            match (until, in_vain) {
                (Some(until), Some(in_vain)) => tokio::select! {
                    _ = in_vain => {}
                    () = sleep_until(until) => {}
                },
                _ => std::future::pending().await,
            }
        };
        let first = tokio::select! {
            biased;
            first = self.first.lock() => first,
            () = late => return Ok(None),
            () = failed => return self.outlook().failure.clone().map_or(Ok(None), Err),
        };
        Ok(Some(Turn {
            line: self,
            _first: first,
        }))
    }

    fn wait_until(&self, until: Instant) -> Option<(Bounded<'_>, oneshot::Receiver<()>)> {
        let mut outlook = self.outlook();
        if outlook.earliest.is_some_and(|earliest| earliest > until) {
            return None;
        }
        outlook.number += 1;
        let key = (until, outlook.number);
        let (sender, receiver) = oneshot::channel();
        outlook.bounded.insert(key, sender);
        Some((Bounded { line: self, key }, receiver))
    }

    fn outlook(&self) -> std::sync::MutexGuard<'_, Outlook> {
        self.outlook.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Tells those behind why it could not be asked for, so that not each of them has to find out by itself.
    pub(crate) fn failed(self, error: &StoreError) {
        self.line.outlook().failure = Some(error.clone());
        self.line.failed.notify_waiters();
    }

    /// Tells those behind that nobody gets it before this.
    pub(crate) fn not_before(&self, at: Instant) {
        let mut outlook = self.line.outlook();
        outlook.earliest = Some(at);
        let patient = outlook.bounded.split_off(&(at, 0));
        let in_vain = std::mem::replace(&mut outlook.bounded, patient);
        for (_, waiter) in in_vain {
            // Who has gone need not be told.
            let _ = waiter.send(());
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line.outlook().earliest = None;
    }
}

impl Drop for Bounded<'_> {
    fn drop(&mut self) {
        self.line.outlook().bounded.remove(&self.key);
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
        let first = line
            .turn(None)
            .await
            .expect("no failure")
            .expect("nobody is before it");
        let later = |millis| Some(began + Duration::from_millis(millis));
        tokio::join!(
            async {
                assert!(matches!(line.turn(later(100)).await, Ok(None)));
                assert_eq!(began.elapsed(), Duration::from_millis(10));
            },
            async {
                assert!(matches!(line.turn(later(200)).await, Ok(Some(_))));
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

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_to_all_who_wait() {
        let line = Line::default();
        let first = line.turn(None).await.expect("no failure").expect("a turn");
        let soon = Some(Instant::now() + Duration::from_secs(60));
        let error = StoreError::new(crate::StoreErrorKind::Timeout, "no answer");
        let (bounded, unbounded, ()) = tokio::join!(line.turn(soon), line.turn(None), async {
            tokio::task::yield_now().await;
            first.failed(&error);
        });
        // The first of them is first now, and finds out by itself.
        let failed = [&bounded, &unbounded].map(Result::is_err);
        assert!(failed.contains(&true), "{failed:?}");
        drop((bounded, unbounded));
        assert!(line.turn(None).await.is_ok(), "who comes later asks");
    }

    #[test]
    fn lines_that_nobody_stands_in_are_dropped() {
        let lines = Lines::default();
        let kept: Vec<_> = (0..1_000).map(|at| lines.line(&at.to_string())).collect();
        let known = || lines.0.lock().expect("no panic");
        for at in 0..100_000 {
            lines.line(&format!("passing {at}"));
            assert!(known().lines.len() <= 2 * kept.len());
        }
        assert!(Arc::ptr_eq(&kept[7], &lines.line("7")));

        drop(kept);
        for at in 0..2_000 {
            lines.line(&format!("late {at}"));
        }
        assert!(known().lines.len() <= Lines::FEW);
        assert!(known().lines.capacity() <= 4 * Lines::FEW);
    }
}
