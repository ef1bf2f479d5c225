use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

use crate::decision::Decisions;
use crate::error::StoreError;
use crate::metrics::RuleCounters;
use crate::store::{Store, StoreFuture, Take, single};

/// A take of a shadow rule that is not answered yet. Only the counters learn its answer.
pub(crate) struct ShadowTake {
    take: Take,
    answer: Pin<Box<StoreFuture<Decisions>>>,
    counters: Arc<RuleCounters>,
}

impl ShadowTake {
    /// Asks the store. `None` if the answer was there at once, and is counted.
    pub(crate) fn ask(
        store: &Arc<dyn Store>,
        take: Take,
        counters: &Arc<RuleCounters>,
    ) -> Option<Self> {
        match store.take(std::slice::from_ref(&take)).now() {
            Ok(answer) => {
                count(&take, answer, counters);
                None
            }
            Err(answer) => Some(Self {
                take,
                answer: Box::pin(answer),
                counters: Arc::clone(counters),
            }),
        }
    }

    /// Counts the answer. It is usually there: a flight carries both takes of a request. Otherwise
    /// a task waits for it, so that no request does.
    pub(crate) fn count(mut self) {
        match self
            .answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(answer) => count(&self.take, answer, &self.counters),
            Poll::Pending => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(async move {
                        count(&self.take, self.answer.await, &self.counters);
                    });
                }
            }
        }
    }
}

fn count(take: &Take, answer: Result<Decisions, StoreError>, counters: &RuleCounters) {
    match answer.and_then(single) {
        Ok(decision) => counters.shadow_decided(take.rule(), &decision, take.cost()),
        Err(error) => counters.store_failed(error.kind()),
    }
}
