use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

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
    pub(super) fn push(&self, grant: Grant) {
        self.state().grants.push(grant);
    }

    /// Starts the task if it is needed.
    ///
    /// A runtime that has ended drops the task: the grants wait for the next call of the batcher.
    pub(super) fn give_back(batcher: &Arc<Batcher>, runtime: &Handle) {
        let mut state = batcher.unwanted().state();
        let is_needed = !state.grants.is_empty() && !std::mem::replace(&mut state.has_task, true);
        drop(state);
        if is_needed {
            runtime.spawn(Task::new(batcher).run());
        }
    }

    pub(super) fn take_all(&self) -> Vec<Grant> {
        std::mem::take(&mut self.state().grants)
    }

    pub(super) fn extend(&self, grants: Vec<Grant>) {
        self.state().grants.extend(grants);
    }

    /// What the task gives back in its next call. Without any it has ended: whatever comes from then
    /// on starts another one.
    fn next(&self) -> Option<Vec<Grant>> {
        let mut state = self.state();
        let number = state.grants.len().min(MAX_BATCH);
        state.has_task = number > 0;
        state.has_task.then(|| state.grants[..number].to_vec())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Task {
    batcher: Arc<Batcher>,
    has_ended: bool,
}

impl Task {
    fn new(batcher: &Arc<Batcher>) -> Self {
        Self {
            batcher: Arc::clone(batcher),
            has_ended: false,
        }
    }

    /// No caller is left to be told of an error. A server that does not answer is asked again for a
    /// while; what is not given back leaves after the interval.
    async fn run(mut self) {
        while let Some(grants) = self.batcher.unwanted().next() {
            let number = grants.len();
            self.give_back(grants).await;
            self.batcher.unwanted().state().grants.drain(..number);
        }
        self.has_ended = true;
    }

    async fn give_back(&self, grants: Vec<Grant>) {
        const ATTEMPTS: u32 = 12;
        const PAUSE: Duration = Duration::from_millis(250);
        let Batcher { backend, what, .. } = &*self.batcher;
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
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.has_ended {
            self.batcher.unwanted().state().has_task = false;
        }
    }
}
