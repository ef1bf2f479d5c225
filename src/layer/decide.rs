//! The decision about a take. It knows nothing of HTTP.
//!
//! ```text
//! take_first ── the store, once, and about the rule's candidate along with it
//!     │
//!   judge ──── no answer ──▶ Failed
//!     │        allowed ────▶ Allowed
//!     │        denied ─────▶ Denied, or it may wait
//!     │
//!    wait ──── sleeps until its retry-after, asks, judges
//! ```

use std::future::{Future, poll_fn};
use std::ops::ControlFlow::{self, Break, Continue};
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tokio::time::{Instant, sleep_until};

use super::shadow_take::ShadowTake;
use super::waiting::{WaitLimits, Waiter};
use crate::callback::Cause;
use crate::decision::{Decision, Source};
use crate::error::StoreError;
use crate::in_flight_counter::InFlightCounter;
use crate::log_on_change::LogOnChange;
use crate::metrics::RuleCounters;
use crate::rule::{OnError, Rule};
use crate::store::{Charge, LateCharge, RefundQueue, Store, StoreFuture, Take, default_store};
use crate::trace::{self, TakeSpan};

/// Decides about takes by asking a store.
#[derive(Clone)]
pub(crate) struct Decider {
    /// Empty until it is needed where nothing else was said: a memory store takes a while to make.
    store: Arc<OnceLock<Arc<dyn Store>>>,
    pub(super) counters: Arc<RuleCounters>,
    pub(super) waiting: WaitLimits,
    /// What candidates were charged is given back there.
    pub(super) refunds: RefundQueue,
    /// Takes of shadow rules that wait for an answer.
    shadows: InFlightCounter,
    log: Arc<StoreLog>,
}

/// What was logged about a store. Another store has failures of its own.
#[derive(Default)]
struct StoreLog {
    failures: LogOnChange,
    is_missing_fallback_logged: OnceLock<()>,
}

/// What the store's answer means for a take.
///
/// A decision with a [failure](Decision::failure) was made by a fallback.
pub(crate) enum Verdict {
    Allowed(Charge),
    Denied(Take, Decision),
    /// There is no decision.
    Failed(Arc<Rule>, Cause),
}

/// A denied take that is asked again later.
pub(super) struct Waiting {
    take: Take,
    until: Instant,
    waiter: Waiter,
    candidate: Option<Arc<LateCharge>>,
}

/// A take about which a store was asked.
pub(super) enum Begun {
    /// The answer was there at once.
    Judged(ControlFlow<Verdict, Waiting>),
    Asked(Asked, StoreFuture<Decision>),
}

/// A take that waits for the store's answer.
pub(super) struct Asked {
    take: Take,
    /// When it was asked. `None` where no request may wait.
    at: Option<Instant>,
    /// The waiter, if the request has waited already.
    waiter: Option<Waiter>,
    /// The candidate that is tried beside the rule.
    candidate: Option<Box<Candidate>>,
    /// The span around the call of the store.
    span: TakeSpan,
}

/// A question about a candidate that was asked.
struct Candidate {
    /// What it was charged.
    charge: Arc<LateCharge>,
    /// Its take, until that is counted.
    shadow: Option<ShadowTake>,
}

impl Decider {
    pub(super) fn new() -> Self {
        Self {
            store: Arc::default(),
            counters: Arc::default(),
            waiting: WaitLimits::default(),
            refunds: RefundQueue::default(),
            shadows: InFlightCounter::default(),
            log: Arc::default(),
        }
    }

    /// Asks this store from now on.
    pub(super) fn set_store(&mut self, store: Arc<dyn Store>) {
        self.store = Arc::new(store.into());
        self.refunds = RefundQueue::default();
        self.log = Arc::default();
    }

    /// The store, if there is one already.
    pub(super) fn known_store(&self) -> Option<&Arc<dyn Store>> {
        self.store.get()
    }

    /// The store, for whoever asks for it later.
    pub(super) fn shared_store(&self) -> Arc<OnceLock<Arc<dyn Store>>> {
        Arc::clone(&self.store)
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.store.get_or_init(default_store)
    }

    /// Asks the store about a request that has just arrived, and about the candidate of its rule.
    #[inline]
    pub(super) fn take_first(&self, take: Take) -> Begun {
        let candidate = take.rule().shadow().map(Arc::clone);
        let Some(candidate) = candidate.map(|candidate| take.under(candidate)) else {
            return self.take(take, None, None);
        };
        let charge = LateCharge::new(&self.refunds);
        let mut begun = self.take(take, None, Some(Arc::clone(&charge)));
        // Both stand in the queue before a flight departs, unless one departs in between.
        if let Some(shadow) = self.begin_shadow(candidate, Some(charge)) {
            match &mut begun {
                Begun::Judged(_) => shadow.count(),
                Begun::Asked(asked, _) => {
                    if let Some(candidate) = &mut asked.candidate {
                        candidate.shadow = Some(shadow);
                    }
                }
            }
        }
        begun
    }

    /// Asks the store about the take of a shadow rule, for whoever may give its charge back.
    pub(super) fn take_in_shadow(&self, take: Take, charge: Option<Arc<LateCharge>>) {
        if let Some(shadow) = self.begin_shadow(take, charge) {
            shadow.count();
        }
    }

    /// Asks the store, once.
    #[inline]
    fn take(
        &self,
        take: Take,
        waiter: Option<Waiter>,
        candidate: Option<Arc<LateCharge>>,
    ) -> Begun {
        let at = self.waiting.now();
        let span = TakeSpan::new(take.rule().path(), || self.store().name());
        let answer = span.in_scope(|| ask(self.store(), &take));
        match answer.now() {
            Ok(answer) => {
                span.record_answer(&answer);
                Begun::Judged(self.judge(take, at, waiter, candidate, answer))
            }
            Err(answer) => {
                let asked = Asked {
                    take,
                    at,
                    waiter,
                    candidate: candidate.map(|charge| {
                        let shadow = None;
                        Box::new(Candidate { charge, shadow })
                    }),
                    span,
                };
                Begun::Asked(asked, answer)
            }
        }
    }

    fn begin_shadow(&self, take: Take, charge: Option<Arc<LateCharge>>) -> Option<ShadowTake> {
        let permit = self.shadows.try_acquire(ShadowTake::MAX_PENDING);
        ShadowTake::begin(self.store(), take, &self.counters, permit, charge)
    }

    /// What an answer means that has to be waited for.
    pub(super) async fn judge_later(
        &self,
        mut asked: Asked,
        answer: StoreFuture<Decision>,
    ) -> ControlFlow<Verdict, Waiting> {
        let at = *asked.at.get_or_insert_with(Instant::now);
        let mut answer = pin!(answer);
        let answer = poll_fn(|cx| asked.span.in_scope(|| answer.as_mut().poll(cx))).await;
        self.counters.answered_after(at.elapsed());
        let candidate = asked.candidate.map(|candidate| {
            let Candidate { charge, shadow } = *candidate;
            shadow.into_iter().for_each(ShadowTake::count);
            charge
        });
        asked.span.record_answer(&answer);
        self.judge(asked.take, Some(at), asked.waiter, candidate, answer)
    }

    /// Sleeps and asks again, until the take is allowed or may wait no longer. `None` if an operator
    /// lets it through meanwhile.
    pub(super) async fn wait(
        &self,
        mut waiting: Waiting,
        is_let_through: impl Fn(&Take) -> bool,
    ) -> Option<Verdict> {
        loop {
            sleep_until(waiting.until).await;
            if is_let_through(&waiting.take) {
                return None;
            }
            let take = waiting.take.repeat();
            let judged = match self.take(take, Some(waiting.waiter), waiting.candidate) {
                Begun::Judged(judged) => judged,
                Begun::Asked(asked, answer) => self.judge_later(asked, answer).await,
            };
            match judged {
                Break(verdict) => return Some(verdict),
                Continue(later) => waiting = later,
            }
        }
    }

    /// What the store's answer means. A denied take that may wait is asked again later.
    fn judge(
        &self,
        mut take: Take,
        at: Option<Instant>,
        mut waiter: Option<Waiter>,
        candidate: Option<Arc<LateCharge>>,
        answer: Result<Decision, StoreError>,
    ) -> ControlFlow<Verdict, Waiting> {
        self.log_answer(take.rule(), &answer);
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => {
                self.counters.store_failed(error.kind());
                let cause = Cause::Store(error, None);
                return Break(Verdict::Failed(take.into_rule(), cause));
            }
        };
        if let Some(failure) = decision.failure() {
            self.counters.store_failed(failure.kind());
        }
        if decision.is_allowed() {
            let (store, counters) = (Arc::clone(self.store()), Arc::clone(&self.counters));
            take.set_failure(None);
            let answer = Charge::decided(store, take, decision, counters, candidate);
            return Break(Verdict::Allowed(answer));
        }
        let limits = &self.waiting;
        let wake = limits.wake_at(at, &take, &mut waiter, &decision, &self.counters);
        match wake.zip(waiter) {
            None => Break(Verdict::Denied(take, decision)),
            Some((until, waiter)) => Continue(Waiting {
                take,
                until,
                waiter,
                candidate,
            }),
        }
    }

    /// Logs that decisions begin to fail, and that they are made again: only the changes.
    fn log_answer(&self, rule: &Rule, answer: &Result<Decision, StoreError>) {
        let path = rule.path();
        match answer {
            // A cached denial does not mean that the store answers again.
            Ok(decision) if decision.source() == Source::Cache => {}
            Ok(_) if self.log.failures.worked() => {
                trace::event!(warn: path, "the store decides again");
            }
            Err(error) if self.log.failures.failed() => {
                let error = error.to_string();
                trace::event!(warn: path, error, "no decisions: the error callbacks answer");
            }
            Ok(_) | Err(_) => {}
        }
        let wants_fallback = rule.on_error() == Some(OnError::Fallback);
        if answer.is_err() && wants_fallback && !self.store().has_fallback() {
            self.log.is_missing_fallback_logged.get_or_init(|| {
                trace::event!(warn: path, "the rule says \"fallback\", but its store has none");
            });
        }
    }
}

/// Asks the store. One that has just failed an outer layer of the same request is not asked, unless
/// it has a fallback.
pub(super) fn ask(store: &Arc<dyn Store>, take: &Take) -> StoreFuture<Decision> {
    match take.failure() {
        Some(failure) if !store.has_fallback() => StoreFuture::ready(Err(failure.clone())),
        _ => store.take(take),
    }
}
