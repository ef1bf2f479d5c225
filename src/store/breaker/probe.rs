//! The task that looks after a store while its breaker is open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::core::Core;
use crate::error::{StoreError, StoreErrorKind};
use crate::jitter;
use crate::store::{Store, StoreExt, Take};

/// How long one look may take, whatever the store's own time-out is.
const LOOK: Duration = Duration::from_secs(1);
/// The least pause between two looks, and the longest.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Owns the task: it ends with this.
#[derive(Debug, Default)]
pub(super) struct Prober(Mutex<Option<AbortHandle>>);

/// What a task looks for.
#[derive(Debug)]
pub(super) struct Errand<S> {
    pub(super) inner: Arc<S>,
    pub(super) core: Arc<Core>,
    /// What failed last, without its cost.
    pub(super) look: Take,
    /// At which the breaker opened.
    pub(super) generation: u64,
    pub(super) every: Duration,
}

impl Prober {
    /// Looks in the background until the store answers. Where there is no runtime, requests have to.
    pub(super) fn start<S: Store>(&self, errand: Errand<S>) {
        let errand = Watching(errand);
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let task = runtime.spawn(errand.run()).abort_handle();
        // The one before has ended: nothing else lets a breaker open anew.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        let task = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

/// An errand that requests take over when it is dropped before its end: with its runtime, or by a panic.
struct Watching<S>(Errand<S>);

impl<S: Store> Watching<S> {
    async fn run(self) {
        let Errand { inner, core, .. } = &self.0;
        let mut look = self.0.look.clone();
        loop {
            sleep(self.0.every + jitter::up_to(self.0.every / 5)).await;
            let answer = timeout(LOOK, inner.take_one(&look)).await;
            if answer.is_ok_and(|answer| is_answer(&answer)) {
                return core.answers(self.0.generation);
            }
            // Others may be well: of another key, another rule, another node.
            look = core.refused().unwrap_or(look);
        }
    }
}

impl<S> Drop for Watching<S> {
    fn drop(&mut self) {
        let Errand {
            core,
            generation,
            every,
            ..
        } = &self.0;
        core.is_left_alone(*generation, Instant::now() + *every);
    }
}

/// Whether it comes from the store: also what is wrong with one key does, and what it refuses at once may be about one.
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

/// The pause between two looks that was asked for: none so short that there is no pause, nor one that never ends.
pub(super) fn pause(every: Duration) -> Duration {
    every.clamp(SHORTEST, LONGEST)
}
