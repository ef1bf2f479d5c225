//! Refunds, and settlements, that nobody waits for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::charge::{Charge, Effect};
use super::permit::HeldPermits;
use super::report::OutcomeReport;
use crate::deadline::Deadline;
use crate::question::Ask;
use crate::store::{Store, StoreFuture};
use crate::sync::lock;
use crate::trace;
use crate::unawaited::{UnawaitedCall, UnawaitedCalls};

/// The most refunds of a store that wait for its answers. Further ones are lost.
///
/// A quarter of what may wait for a server, so that takes find room in any case.
const MAX_PENDING: usize = 4_096;

/// Gives charges back after their requests have ended, for all layers of a store. Clones are the
/// same queue.
///
/// The store is asked immediately, so that refunds keep their place among its takes. Only the
/// answer is waited for, by a task in the runtime of the request that has ended. So nothing has to
/// be started again when a runtime is gone. A store that answers immediately needs neither task nor
/// runtime.
///
/// A refund is lost beyond [`MAX_PENDING`], after an error, a panic or [`Ask::PATIENCE`], since a
/// store without a time-out of its own may never answer, and when the runtime ends. Its units stay
/// charged, and the loss is counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefundQueue(Arc<Pending>);

#[derive(Debug, Default)]
struct Pending {
    asked: UnawaitedCalls,
    /// Releases that wait for room.
    waiting: UnawaitedCalls,
    /// The permits of requests in progress.
    permits: HeldPermits,
    /// The runtime of the first request whose charge was handed to code, which may settle it in a
    /// thread without a runtime.
    runtime: OnceLock<Handle>,
}

impl RefundQueue {
    /// Settles a charge, unless another caller has.
    pub(crate) fn settle(&self, charge: &Charge, what: Effect) {
        let Some(refund) = charge.claim(what) else {
            return;
        };
        // It is given up behind the refund.
        let place = self.place();
        let refund = refund.unawaited();
        let Some(place) = place else {
            return;
        };
        let runtime = self.runtime();
        let _entered = runtime.map(Handle::enter);
        let Ok(mut answer) = catch_unwind(AssertUnwindSafe(|| refund.ask())) else {
            let path = charge.take().rule().path();
            trace::event!(error: path, "a store panicked: a refund is lost");
            return;
        };
        match answer.poll_now() {
            Some(Ok(units)) => _ = refund.answered(units),
            Some(Err(_)) => {}
            None => spawn(place.until(async move {
                let deadline = Deadline::after(Ask::PATIENCE);
                if let Some(Ok(units)) = deadline.wait_for(answer).await {
                    refund.answered(units);
                }
            })),
        }
    }

    /// Reports the outcome of a request to the store.
    pub(super) fn report(&self, report: OutcomeReport) {
        let Some(place) = self.place() else {
            return report.is_lost();
        };
        let runtime = self.runtime();
        let _entered = runtime.map(Handle::enter);
        let Ok(mut answer) = catch_unwind(AssertUnwindSafe(|| report.ask(Ask::PATIENCE))) else {
            return report.is_lost();
        };
        match answer.poll_now() {
            Some(Ok(step)) => report.answered(step),
            Some(error) => {
                spawn(place.until(report.send_until_answered(StoreFuture::ready(error))))
            }
            None => spawn(place.until(report.send_until_answered(answer))),
        }
    }

    /// The runtime that a thread of its own has to enter.
    fn runtime(&self) -> Option<&Handle> {
        let runtime = self.0.runtime.get();
        runtime.filter(|_| Handle::try_current().is_err())
    }

    /// A charge may be given back outside of this runtime.
    pub(super) fn remember_runtime(&self) {
        if self.0.runtime.get().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            self.0.runtime.get_or_init(|| runtime);
        }
    }

    /// Whether they are the same queue: that of one `Limits`.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn permits(&self) -> &HeldPermits {
        &self.0.permits
    }

    /// The place of a call that is asked now, if there is one.
    pub(crate) fn place(&self) -> Option<UnawaitedCall> {
        let has_room = self.0.asked.number() < MAX_PENDING;
        has_room.then(|| self.0.asked.add())
    }

    /// The place of a call that waits for a place.
    pub(crate) fn waiting(&self) -> UnawaitedCall {
        self.0.waiting.add()
    }

    /// Waits until no call waits for an answer of this store, and then until none of these callbacks
    /// runs, for at most `bound`. Returns whether that came in time.
    pub(crate) async fn flush(
        &self,
        store: &dyn Store,
        tellings: &UnawaitedCalls,
        bound: Duration,
    ) -> bool {
        let until = Deadline::after(bound);
        // A release that has waited for room has a place among those that are asked by then.
        let is_empty = self.0.waiting.flush(until).await && self.0.asked.flush(until).await;
        let left = until.at.saturating_duration_since(Instant::now());
        let is_empty = is_empty && matches!(store.flush(left).await, Ok(true));
        // An answer to a refund or a failure may have begun one.
        is_empty && tellings.flush(until).await
    }
}

/// Begins the call, and makes the rest of it in a task of the current runtime. Outside of a runtime
/// the call is lost.
///
/// A store may ask only when it is polled: what the caller asks next has to be behind that.
pub(crate) fn spawn(call: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        let mut call = Box::pin(call);
        let begin = || call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Ok(Poll::Pending) = catch_unwind(AssertUnwindSafe(begin)) {
            runtime.spawn(call);
        }
    }
}

/// The charge of a shadow rule's take, which may have to be given back before the store has
/// answered: no request waits for that answer. Only the layer sees it.
#[derive(Debug)]
pub(crate) struct LateCharge {
    state: Mutex<LateState>,
    refunds: RefundQueue,
}

#[derive(Debug)]
enum LateState {
    /// The store has not answered yet: the effects to apply to the charge, each with a place, so
    /// that a flush waits for them.
    Asked(Vec<(Effect, Option<UnawaitedCall>)>),
    /// The store has answered: with a charge, or without one.
    Answered(Option<Charge>),
}

impl LateCharge {
    /// The charge of a take about which the store is asked now. This queue gives it back.
    pub(crate) fn new(refunds: &RefundQueue) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(LateState::Asked(Vec::new())),
            refunds: refunds.clone(),
        })
    }

    /// The store has answered: with a charge, or without one.
    pub(crate) fn answered(&self, charge: Option<Charge>) {
        let answered = LateState::Answered(charge.clone());
        let before = std::mem::replace(&mut *lock(&self.state), answered);
        if let (LateState::Asked(effects), Some(charge)) = (before, charge) {
            effects.iter().for_each(|(effect, _)| effect.apply(&charge));
        }
    }

    /// Does this: now, or when the store has answered.
    pub(crate) fn apply(&self, effect: Effect) {
        let mut state = lock(&self.state);
        match &mut *state {
            LateState::Asked(effects) => effects.push((effect, self.refunds.place())),
            LateState::Answered(Some(charge)) => {
                let charge = charge.clone();
                drop(state);
                effect.apply(&charge);
            }
            LateState::Answered(None) => {}
        }
    }
}
