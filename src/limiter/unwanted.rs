use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;

use super::backend::Grant;
use super::batcher::Batcher;

/// Grants in one call.
const MAX_BATCH: usize = 64;

/// Grants, and places of fair callers, that nobody wants, until a task has given them back.
#[derive(Debug, Default)]
pub(super) struct Unwanted(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    grants: Vec<Grant>,
    has_task: bool,
}

impl Unwanted {
    /// Adds a grant, and starts the task if there is none.
    pub(super) fn give_back(batcher: &Arc<Batcher>, grant: Grant) {
        let mut state = batcher.unwanted().state();
        state.grants.push(grant);
        let has_task = std::mem::replace(&mut state.has_task, true);
        drop(state);
        if has_task {
            return;
        }
        let task = give_back_all(Arc::clone(batcher));
        match batcher.backend.runtime() {
            // One that has ended drops the task: nothing is asked any more.
            Some(runtime) => drop(runtime.spawn(task)),
            // Nothing has to be waited for.
            None => drop(task.now_or_never()),
        }
    }

    /// What the task gives back in its next call. Without any it has ended: whatever comes from then
    /// on starts another one.
    fn next(&self) -> Option<Vec<Grant>> {
        let mut state = self.state();
        let from = state.grants.len().saturating_sub(MAX_BATCH);
        let grants = state.grants.split_off(from);
        state.has_task = !grants.is_empty();
        state.has_task.then_some(grants)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No caller is left to be told of an error. A server that does not answer is asked again for a
/// while; what is not given back leaves after the interval.
async fn give_back_all(batcher: Arc<Batcher>) {
    while let Some(grants) = batcher.unwanted().next() {
        give_back(&batcher, grants).await;
    }
}

async fn give_back(batcher: &Batcher, grants: Vec<Grant>) {
    const ATTEMPTS: u32 = 12;
    const PAUSE: Duration = Duration::from_millis(250);
    let Batcher { backend, what, .. } = batcher;
    for _ in 0..ATTEMPTS {
        let given_back = backend.give_back(Arc::clone(&what.name), grants.clone());
        match given_back.await {
            Err(error) if error.of_store().is_some() => tokio::time::sleep(PAUSE).await,
            // A place that was given up is the next caller's.
            Ok(permits) if permits > 0 || what.is_fair => {
                return backend.client().changed(&what.name);
            }
            Ok(_) | Err(_) => return,
        }
    }
}
