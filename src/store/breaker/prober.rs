//! The task that probes a store while its breaker is open.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::breaker::SharedState;
use crate::deadline::Deadline;
use crate::error::{StoreError, StoreErrorKind};
use crate::jitter;
use crate::store::{Ask, Store};
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
        let probe = ProbeTask(probe);
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let task = runtime.spawn(probe.run()).abort_handle();
        // The task before has ended: only a store that answered lets the breaker open again.
        *lock(&self.0) = Some(OwnedTask(task));
    }
}

/// Tells the breaker when the task ends early, with its runtime or by a panic: requests probe then.
struct ProbeTask<S>(Probe<S>);

impl<S: Store> ProbeTask<S> {
    async fn run(self) {
        let Probe { inner, state, .. } = &self.0;
        let (mut ask, every) = (Arc::clone(&self.0.ask), state.probe_every);
        loop {
            sleep(every + jitter::up_to(every / 5)).await;
            let answer = Deadline::after(state.patience).wait_for(inner.take(&ask));
            if answer.await.is_some_and(|answer| is_answer(&answer)) {
                return state.store_answered(self.0.generation);
            }
            // Takes of another key, rule or node may be answered.
            ask = state.refused().unwrap_or(ask);
        }
    }
}

impl<S> Drop for ProbeTask<S> {
    fn drop(&mut self) {
        let state = &self.0.state;
        state.stop_probing(self.0.generation, Instant::now() + state.probe_every);
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
