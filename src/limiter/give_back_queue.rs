use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;

use super::client::LimiterState;
use super::limiter_backend::{AcquireRequest, Grant, Limiters};
use crate::sync::lock;

/// The largest number of grants in one call.
const MAX_BATCH: usize = 64;
/// How often a server that does not answer is asked.
const MAX_ATTEMPTS: u32 = 12;
/// From one attempt to the next.
const PAUSE: Duration = Duration::from_millis(250);

/// Grants, and places in the fair queue, that no caller uses. A background task gives them back.
///
/// No caller is left to hear of an error. Permits that cannot be given back expire after the
/// interval.
pub(super) struct GiveBackQueue {
    limiters: Arc<dyn Limiters>,
    name: Arc<str>,
    is_fair: bool,
    state: Arc<LimiterState>,
    grants: Mutex<UnusedGrants>,
}

#[derive(Default)]
struct UnusedGrants {
    grants: Vec<Grant>,
    has_task: bool,
}

impl GiveBackQueue {
    pub(super) fn new(
        limiters: &Arc<dyn Limiters>,
        request: &AcquireRequest,
        state: &Arc<LimiterState>,
    ) -> Arc<Self> {
        Arc::new(Self {
            limiters: Arc::clone(limiters),
            name: Arc::clone(&request.name),
            is_fair: request.is_fair,
            state: Arc::clone(state),
            grants: Mutex::default(),
        })
    }

    /// Adds a grant, and starts the task if none runs.
    pub(super) fn add(self: &Arc<Self>, grant: Grant) {
        let mut unused = lock(&self.grants);
        unused.grants.push(grant);
        let has_task = std::mem::replace(&mut unused.has_task, true);
        drop(unused);
        if has_task {
            return;
        }
        let task = Arc::clone(self).give_back_all();
        match self.limiters.runtime() {
            // A runtime that has ended drops the task.
            Some(runtime) => drop(runtime.spawn(task)),
            // Limiters without a runtime answer at once.
            None => drop(task.now_or_never()),
        }
    }

    async fn give_back_all(self: Arc<Self>) {
        while let Some(grants) = self.next_batch() {
            self.give_back(grants).await;
        }
    }

    async fn give_back(&self, grants: Vec<Grant>) {
        for _ in 0..MAX_ATTEMPTS {
            let given_back = self
                .limiters
                .give_back(Arc::clone(&self.name), grants.clone());
            match given_back.await {
                Err(error) if error.is_store_error() => tokio::time::sleep(PAUSE).await,
                // A place in the fair queue that is given up belongs to the next caller.
                Ok(permits) if permits > 0 || self.is_fair => {
                    return self.state.notify_waiters();
                }
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// The grants of the task's next call. `None` ends the task; a grant that is added later starts
    /// another one.
    fn next_batch(&self) -> Option<Vec<Grant>> {
        let mut unused = lock(&self.grants);
        let from = unused.grants.len().saturating_sub(MAX_BATCH);
        let batch = unused.grants.split_off(from);
        unused.has_task = !batch.is_empty();
        unused.has_task.then_some(batch)
    }
}
