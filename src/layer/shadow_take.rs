use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::decide::ask;
use crate::callback::caught;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::in_flight_counter::Permit;
use crate::metrics::RuleCounters;
use crate::store::{Charge, LateCharge, Store, StoreFuture, Take};

/// A take of a shadow rule that is not answered yet. Only the counters learn its answer, and
/// whoever may give back what it was charged.
pub(super) struct ShadowTake {
    asked: Asked,
    answer: Pin<Box<StoreFuture<Decision>>>,
    _permit: Permit,
}

/// A question that was asked, and who learns its answer.
struct Asked {
    store: Arc<dyn Store>,
    take: Take,
    counters: Arc<RuleCounters>,
    charge: Option<Arc<LateCharge>>,
}

/// After this time nobody waits for an answer any more: a store without a time-out of its own may
/// never give one.
const MAX_WAIT: Duration = Duration::from_secs(10);

impl ShadowTake {
    /// The most takes of shadow rules that wait for an answer in one layer. Beyond that, the store
    /// is not asked.
    pub(super) const MAX_PENDING: usize = 4_096;

    /// Asks the store. `None` if the answer was there at once and is counted, or if too many takes
    /// are pending, so that there is no permit. A panic of the store is logged.
    pub(super) fn begin(
        store: &Arc<dyn Store>,
        take: Take,
        counters: &Arc<RuleCounters>,
        permit: Option<Permit>,
        charge: Option<Arc<LateCharge>>,
    ) -> Option<Self> {
        let asked = Asked {
            store: Arc::clone(store),
            take,
            counters: Arc::clone(counters),
            charge,
        };
        let answer = permit.and_then(|permit| {
            let path = asked.take.rule().path();
            let answer = caught("store of a shadow rule", path, || ask(store, &asked.take));
            Some((answer.ok()?.now(), permit))
        });
        match answer {
            None => asked.answered(None),
            Some((Ok(answer), _)) => asked.answered(Some(answer)),
            Some((Err(answer), _permit)) => {
                return Some(Self {
                    asked,
                    answer: Box::pin(answer),
                    _permit,
                });
            }
        }
        None
    }

    /// Counts the answer. It is usually there: a flight carries both takes of a request. Otherwise
    /// a task waits for it, so that no request does.
    pub(super) fn count(mut self) {
        let answer = self.answer.as_mut();
        let path = self.asked.take.rule().path();
        let polled = caught("store of a shadow rule", path, || {
            answer.poll(&mut Context::from_waker(Waker::noop()))
        });
        match polled {
            Ok(Poll::Ready(answer)) => self.asked.answered(Some(answer)),
            Err(_) => self.asked.answered(None),
            Ok(Poll::Pending) => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(self.wait());
                }
            }
        }
    }

    async fn wait(mut self) {
        let answer = timeout(MAX_WAIT, self.answer.as_mut()).await;
        self.asked.answered(answer.ok());
    }
}

impl Asked {
    /// The store has answered; `None` if there will be no answer.
    fn answered(self, answer: Option<Result<Decision, StoreError>>) {
        let Self {
            store,
            take,
            counters,
            charge,
        } = self;
        let decision = answer.and_then(Result::ok);
        match &decision {
            Some(decision) => counters.shadow_decided(take.rule(), decision, take.cost()),
            None => counters.shadow_failed(),
        }
        if let Some(late) = charge {
            let allowed = decision.filter(Decision::is_allowed);
            late.answered(allowed.map(|it| Charge::decided(store, take, it, counters, None)));
        }
    }
}
