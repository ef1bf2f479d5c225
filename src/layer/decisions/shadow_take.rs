use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::timeout;

use super::decide::{Decided, ask};
use super::decider::Decider;
use super::listeners::Listeners;
use crate::callback::caught;
use crate::charge::{Charge, LateCharge, LatePermit, PathState, RefundQueue, spawn};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::in_flight_counter::InFlightCounter;
use crate::store::Store;
use crate::take::Take;

/// A take of a shadow rule. Its answer goes to the counters, and to callers that may give back what
/// it was charged.
struct AskedInShadow {
    store: Arc<dyn Store>,
    take: Take,
    path: Arc<PathState>,
    listeners: Option<Arc<Listeners>>,
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

/// Asks the store about a take of a shadow rule, which passes. A task waits for an answer that is
/// not there immediately, so that no request does. A panic of the store is logged.
pub(super) fn ask_in_shadow(decider: &Decider, take: Take) -> Decided {
    let rule = Arc::clone(take.rule());
    let is_read = decider.gives_back || rule.reads_response();
    let is_changed = is_read || rule.settle_dropped().is_some();
    let charge = is_changed.then(|| LateCharge::new(&decider.refunds));
    let permit = rule.has_permits().then(LatePermit::default);
    let asked = AskedInShadow {
        store: Arc::clone(decider.store()),
        listeners: decider.listeners.clone(),
        take,
        path: Arc::clone(&decider.path),
        charge: charge.clone(),
        permit: permit.clone(),
        refunds: decider.refunds.clone(),
    };
    asked.ask(&decider.shadows);
    Decided::Pass(rule, charge, permit)
}

impl AskedInShadow {
    fn ask(self, pending: &InFlightCounter) {
        let path = self.take.rule().path();
        let answer = pending.try_acquire(MAX_PENDING).and_then(|place| {
            let answer = caught(STORE, path, || ask(&self.store, &self.take));
            Some((answer.ok()?, place))
        });
        let Some((mut answer, place)) = answer else {
            return self.answered(None);
        };
        if let Some(answer) = answer.poll_now() {
            return self.answered(Some(answer));
        }
        // A flush waits for what the answer may tell.
        let telling = self.listeners.as_ref().map(|_| self.path.telling());
        let mut answer = Box::pin(answer);
        let mut noop = Context::from_waker(Waker::noop());
        match caught(STORE, path, || answer.as_mut().poll(&mut noop)) {
            Ok(Poll::Ready(answer)) => self.answered(Some(answer)),
            Err(_) => self.answered(None),
            Ok(Poll::Pending) => spawn(async move {
                let _places = (place, telling);
                let answer = timeout(MAX_WAIT, answer).await;
                self.answered(answer.ok());
            }),
        }
    }

    /// The store has answered; `None` if there will be no answer.
    fn answered(self, answer: Option<Result<Decision, StoreError>>) {
        let Self { take, path, .. } = self;
        let decision = answer.and_then(Result::ok);
        if let (Some(listeners), Some(decision)) = (&self.listeners, &decision) {
            let watch = listeners.watch(&take, &self.store, &path);
            watch.iter().for_each(|it| it.look(decision));
        }
        match &decision {
            Some(decision) => path
                .counters
                .shadow_decided(take.rule(), decision, take.cost()),
            None => path.counters.numbers.shadow_errors.add(1),
        }
        if let (Some(late), Some(decision)) = (self.permit, &decision) {
            late.answered(self.refunds.permit_of(&self.store, &take, decision, &path));
        }
        if let Some(late) = self.charge {
            let allowed = decision.filter(Decision::is_allowed);
            let (store, path, refunds) = (self.store, Some(path), self.refunds);
            let listeners = self.listeners.map(|it| it as _);
            let charge = |it| Charge::decided(store, take, it, path, refunds, listeners);
            late.answered(allowed.map(charge));
        }
    }
}
