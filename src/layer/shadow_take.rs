use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::timeout;

use super::decide::ask;
use super::gate::Gate;
use crate::callback::caught;
use crate::charge::{Charge, LateCharge, LatePermit, RefundQueue, spawn};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::metrics::RuleCounters;
use crate::store::Store;
use crate::take::Take;

/// A take of a shadow rule. Its answer goes to the counters, and to callers that may give back what
/// it was charged.
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

/// Asks the store about a take of a shadow rule. A task waits for an answer that is not there
/// immediately, so that no request does. A panic of the store is logged.
pub(super) fn ask_in_shadow(
    gate: &Gate,
    take: Take,
    charge: Option<Arc<LateCharge>>,
    permit: Option<LatePermit>,
) {
    let asked = AskedInShadow {
        store: Arc::clone(gate.store()),
        take,
        counters: Arc::clone(&gate.counters),
        charge,
        permit,
        refunds: gate.refunds.clone(),
    };
    let answer = gate.shadows.try_acquire(MAX_PENDING).and_then(|place| {
        let path = asked.take.rule().path();
        let answer = caught(STORE, path, || ask(&asked.store, &asked.take));
        Some((answer.ok()?, place))
    });
    let Some((mut answer, place)) = answer else {
        return asked.answered(None);
    };
    if let Some(answer) = answer.poll_now() {
        return asked.answered(Some(answer));
    }
    let mut answer = Box::pin(answer);
    let (path, mut noop) = (asked.take.rule().path(), Context::from_waker(Waker::noop()));
    match caught(STORE, path, || answer.as_mut().poll(&mut noop)) {
        Ok(Poll::Ready(answer)) => asked.answered(Some(answer)),
        Err(_) => asked.answered(None),
        Ok(Poll::Pending) => spawn(async move {
            let _place = place;
            let answer = timeout(MAX_WAIT, answer).await;
            asked.answered(answer.ok());
        }),
    }
}

impl AskedInShadow {
    /// The store has answered; `None` if there will be no answer.
    fn answered(self, answer: Option<Result<Decision, StoreError>>) {
        let Self { take, counters, .. } = self;
        let decision = answer.and_then(Result::ok);
        match &decision {
            Some(decision) => counters.shadow_decided(take.rule(), decision, take.cost()),
            None => counters.numbers.shadow_errors.add(1),
        }
        if let (Some(late), Some(decision)) = (self.permit, &decision) {
            late.answered(self.refunds.hold(&self.store, &take, decision, &counters));
        }
        if let Some(late) = self.charge {
            let allowed = decision.filter(Decision::is_allowed);
            let refunds = self.refunds;
            let charge = |it| Charge::decided(self.store, take, it, Some(counters), refunds);
            late.answered(allowed.map(charge));
        }
    }
}
