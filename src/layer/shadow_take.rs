use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::callback::caught;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::in_flight_counter::{InFlightCounter, Permit};
use crate::metrics::RuleCounters;
use crate::store::{Store, StoreFuture, Take};

/// A take of a shadow rule that is not answered yet. Only the counters learn its answer.
pub(crate) struct ShadowTake {
    take: Take,
    answer: Pin<Box<StoreFuture<Decision>>>,
    counters: Arc<RuleCounters>,
    _permit: Permit,
}

/// The most takes of shadow rules that wait for an answer in one layer. Of more, the store is not
/// asked.
const MAX_PENDING: usize = 4_096;

/// After this time nobody waits for an answer any more: a store without a time-out of its own may
/// never give one.
const MAX_WAIT: Duration = Duration::from_secs(10);

impl ShadowTake {
    /// Asks the store. `None` if the answer was there at once and is counted, or if too many takes
    /// are pending. A panic of the store is logged.
    pub(crate) fn ask(
        store: &Arc<dyn Store>,
        take: Take,
        counters: &Arc<RuleCounters>,
        pending: &InFlightCounter,
    ) -> Option<Self> {
        let Some(permit) = pending.try_acquire(MAX_PENDING) else {
            counters.shadow_failed();
            return None;
        };
        let path = take.rule().path();
        let asked = caught("store of a shadow rule", path, || store.take(&take));
        let Ok(answer) = asked else {
            counters.shadow_failed();
            return None;
        };
        match answer.now() {
            Ok(answer) => {
                count(&take, answer, counters);
                None
            }
            Err(answer) => Some(Self {
                take,
                answer: Box::pin(answer),
                counters: Arc::clone(counters),
                _permit: permit,
            }),
        }
    }

    /// Counts the answer. It is usually there: a flight carries both takes of a request. Otherwise
    /// a task waits for it, so that no request does.
    pub(crate) fn count(mut self) {
        let answer = self.answer.as_mut();
        let polled = caught("store of a shadow rule", self.take.rule().path(), || {
            answer.poll(&mut Context::from_waker(Waker::noop()))
        });
        match polled {
            Ok(Poll::Ready(answer)) => count(&self.take, answer, &self.counters),
            Err(_) => self.counters.shadow_failed(),
            Ok(Poll::Pending) => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(self.wait());
                }
            }
        }
    }

    async fn wait(mut self) {
        match timeout(MAX_WAIT, self.answer.as_mut()).await {
            Ok(answer) => count(&self.take, answer, &self.counters),
            Err(_) => self.counters.shadow_failed(),
        }
    }
}

fn count(take: &Take, answer: Result<Decision, StoreError>, counters: &RuleCounters) {
    match answer {
        Ok(decision) => counters.shadow_decided(take.rule(), &decision, take.cost()),
        Err(_) => counters.shadow_failed(),
    }
}
