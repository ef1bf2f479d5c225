//! Questions for permits: those of many callers of one name travel in one call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::LimiterError;
use super::backend::{Backend, Grant, Id, Wanted};
use super::call::Call;
use super::pending::{Answer, Pending, Question};
use super::unwanted::Unwanted;

/// Asks for all callers that want as many permits of one name in the same way, up to 64 of them in
/// a call.
#[derive(Debug)]
pub(super) struct Batcher {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) what: Wanted,
    pending: Mutex<Pending>,
    /// The instant at which repeats may be asked has changed.
    retimed: Notify,
    unwanted: Unwanted,
}

impl Batcher {
    pub(super) fn new(what: &Wanted, backend: &Arc<dyn Backend>) -> Self {
        Self {
            backend: Arc::clone(backend),
            what: what.clone(),
            pending: Mutex::default(),
            retimed: Notify::new(),
            unwanted: Unwanted::default(),
        }
    }

    /// The number of a new caller.
    pub(super) fn arrive(&self) -> u64 {
        self.pending().arrive()
    }

    /// May this caller have its permits now?
    pub(super) async fn ask(
        self: &Arc<Self>,
        arrival: u64,
        id: Id,
        until: Option<Instant>,
    ) -> Result<Answer, LimiterError> {
        /// A runtime that ends takes its calls along, also those with questions of other runtimes.
        const ATTEMPTS: usize = 4;
        for _ in 0..ATTEMPTS {
            let (question, answer) = Question::new(id, until);
            self.pending().add(arrival, question);
            self.depart();
            match answer.await {
                Ok(answer) => return answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
        Err(LimiterError::runtime_ended())
    }

    /// The rate is another one, or permits came back: whoever waits asks again.
    pub(super) fn changed(self: &Arc<Self>) {
        self.pending().changed();
        self.depart();
    }

    /// Gives back what a caller may have been granted, or ends its fair waiting.
    pub(super) fn give_back(self: &Arc<Self>, grant: Grant) {
        Unwanted::give_back(self, grant);
    }

    pub(super) const fn unwanted(&self) -> &Unwanted {
        &self.unwanted
    }

    /// A call has answered: the repeats may be asked at another instant now.
    pub(super) fn retime(&self) {
        self.retimed.notify_one();
    }

    /// Sends what waits, as far as calls may be made, and sees to it that repeats are sent later.
    ///
    /// A runtime that has ended drops at once what it is given to run, and that needs the state: it
    /// is not locked then.
    fn depart(self: &Arc<Self>) {
        let current = match self.backend.runtime() {
            Some(runtime) => Ok(runtime.clone()),
            None => Handle::try_current(),
        };
        let Ok(runtime) = current else {
            // Nothing is sent any more, and the callers hear of it.
            drop(self.pending().take_all());
            return;
        };
        loop {
            let next = self.pending().next_batch(self.what.is_fair);
            let Some((batch, changes)) = next else {
                break;
            };
            let call = Call(Arc::clone(self)).run(batch, changes);
            runtime.spawn(Arc::clone(self).then_depart(call));
        }
        let needs_timer = self.pending().needs_timer();
        if needs_timer {
            let timer = Timer(Arc::clone(self)).run();
            runtime.spawn(Arc::clone(self).then_depart(timer));
        }
    }

    async fn then_depart(self: Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let mut closing = Closing(Some(Arc::clone(&self)));
        task.await;
        closing.0 = None;
        self.depart();
    }

    pub(super) fn pending(&self) -> MutexGuard<'_, Pending> {
        // It is whole between any two statements.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that sleeps until the repeats may be asked.
struct Timer(Arc<Batcher>);

impl Timer {
    async fn run(self) {
        loop {
            let asleep_until = self.0.pending().asleep_until();
            let Some(until) = asleep_until else {
                return;
            };
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.0.retimed.notified() => {}
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.pending().timer_ended();
    }
}

/// If a task ends before its time, its runtime has ended: nothing is sent any more, and the callers
/// hear of it.
struct Closing(Option<Arc<Batcher>>);

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(batcher) = self.0.take() {
            drop(batcher.pending().take_all());
        }
    }
}
