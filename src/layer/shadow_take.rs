use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::decide::ask;
use super::gate::Gate;
use crate::callback::caught;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::in_flight_counter::Permit;
use crate::metrics::RuleCounters;
use crate::store::{Charge, LateCharge, LatePermit, RefundQueue, Store, StoreFuture, Take};

/// A take of a shadow rule that is not answered yet. Only the counters learn its answer, and
/// callers that may give back what it was charged.
pub(super) struct ShadowTake {
    asked: AskedInShadow,
    answer: Pin<Box<StoreFuture<Decision>>>,
    _permit: Permit,
}

/// Who learns the answer about a take of a shadow rule.
struct AskedInShadow {
    store: Arc<dyn Store>,
    take: Take,
    counters: Arc<RuleCounters>,
    charge: Option<Arc<LateCharge>>,
    permit: Option<LatePermit>,
    refunds: RefundQueue,
}

/// After this time nobody waits for an answer any more: a store without a time-out of its own may
/// never give one.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The maximum of takes of shadow rules that wait for an answer in one layer. Beyond that, the
/// store is not asked.
const MAX_PENDING: usize = 4_096;

const STORE: &str = "store of a shadow rule";

impl ShadowTake {
    /// Asks the store. `None` if the answer was there immediately and is counted, or if too many
    /// takes are pending. A panic of the store is logged.
    pub(super) fn begin(
        gate: &Gate,
        take: Take,
        charge: Option<Arc<LateCharge>>,
        permit: Option<LatePermit>,
    ) -> Option<Self> {
        let asked = AskedInShadow {
            store: Arc::clone(gate.store()),
            take,
            counters: Arc::clone(&gate.counters),
            charge,
            permit,
            refunds: gate.refunds.clone(),
        };
        let answer = gate.shadows.try_acquire(MAX_PENDING).and_then(|permit| {
            let path = asked.take.rule().path();
            let answer = caught(STORE, path, || ask(&asked.store, &asked.take));
            Some((answer.ok()?, permit))
        });
        let Some((mut answer, _permit)) = answer else {
            asked.answered(None);
            return None;
        };
        match answer.poll_now() {
            Some(answer) => asked.answered(Some(answer)),
            None => {
                let answer = Box::pin(answer);
                return Some(Self {
                    asked,
                    answer,
                    _permit,
                });
            }
        }
        None
    }

    /// Counts the answer. It is usually there: a flight carries both takes of a request. Otherwise
    /// a task waits for it, so that no request does.
    pub(super) fn count(mut self) {
        let (answer, path) = (self.answer.as_mut(), self.asked.take.rule().path());
        let mut noop = Context::from_waker(Waker::noop());
        match caught(STORE, path, || answer.poll(&mut noop)) {
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

impl AskedInShadow {
    /// The store has answered; `None` if there will be no answer.
    fn answered(self, answer: Option<Result<Decision, StoreError>>) {
        let Self { take, counters, .. } = self;
        let decision = answer.and_then(Result::ok);
        match &decision {
            Some(decision) => counters.shadow_decided(take.rule(), decision, take.cost()),
            None => counters.shadow_errors.add(1),
        }
        if let (Some(late), Some(decision)) = (self.permit, &decision) {
            late.answered(self.refunds.hold(&self.store, &take, decision, &counters));
        }
        if let Some(late) = self.charge {
            let allowed = decision.filter(Decision::is_allowed);
            let refunds = self.refunds;
            let charge = |it| Charge::decided(self.store, take, it, Some(counters), refunds, None);
            late.answered(allowed.map(charge));
        }
    }
}
