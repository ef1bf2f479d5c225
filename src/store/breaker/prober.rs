//! The task that probes a store while its breaker is open.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::breaker::SharedState;
use crate::deadline::Deadline;
use crate::error::{StoreError, StoreErrorKind};
use crate::jitter;
use crate::question::Ask;
use crate::store::Store;
use crate::sync::{OwnedTask, lock};

/// How long one probe may take, whatever the store's own time-out is.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bounds of the pause between two probes.
const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// Owns the task: it ends when this is dropped.
#[derive(Default)]
pub(super) struct Prober(Mutex<Option<OwnedTask>>);

/// What the task asks, and whom it tells.
pub(super) struct Probe<S> {
    pub(super) inner: Arc<S>,
    pub(super) state: Arc<SharedState>,
    /// The take that failed last, which only looks here.
    pub(super) ask: Arc<Ask>,
    /// The generation at which the breaker opened.
    pub(super) generation: u64,
}

impl Prober {
    /// Probes in the background until the store answers. Without a runtime, requests do it.
    pub(super) fn start<S: Store>(&self, probe: Probe<S>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let task = runtime.spawn(probe.run()).abort_handle();
        // The task before has ended: only a store that answered lets the breaker open again.
        *lock(&self.0) = Some(OwnedTask(task));
    }
}

impl<S: Store> Probe<S> {
    async fn run(mut self) {
        let state = Arc::clone(&self.state);
        let every = state.probe_every;
        loop {
            sleep(every + jitter::up_to(every / 5)).await;
            let answer = Deadline::after(state.patience).wait_for(self.inner.take(&self.ask));
            if answer.await.is_some_and(|answer| is_answer(&answer)) {
                return state.store_answered(self.generation);
            }
            // Takes of another key, rule or node may be answered.
            if let Some(refused) = state.refused() {
                self.ask = refused;
            }
        }
    }
}

/// Tells the breaker when the task ends early, with its runtime or by a panic: requests probe then.
impl<S> Drop for Probe<S> {
    fn drop(&mut self) {
        let next = Instant::now() + self.state.probe_every;
        self.state.stop_probing(self.generation, next);
    }
}

/// Whether the store answered. An error about one key is an answer, and a refusal may be about one.
fn is_answer<T>(answer: &Result<T, StoreError>) -> bool {
    use StoreErrorKind as Kind;
    match answer {
        Ok(_) => true,
        Err(error) => matches!(
            error.kind(),
            Kind::WrongType | Kind::Full | Kind::Refused | Kind::Protocol
        ),
    }
}

/// The pause within its bounds: never none, never without end.
pub(super) fn bounded(every: Duration) -> Duration {
    every.clamp(MIN_PAUSE, MAX_PAUSE)
}
