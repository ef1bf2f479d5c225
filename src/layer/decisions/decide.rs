//! The decision about a take. It knows nothing of HTTP.
//!
//! ```text
//! decide ──── let through, or in shadow ──▶ Pass; a raise multiplies the quotas
//!   │         blocked ────▶ Denied
//!   │
//!  ask ────── the store, once
//!   │
//! judge ───── no answer ──▶ Failed
//!   │         allowed ────▶ Allowed
//!   │         denied ─────▶ Denied, or it may wait
//!   │
//!  wait ───── sleeps until it is its turn, and asks anew, under the rule of now
//! ```

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::counting::told_of;
use super::decider::Decider;
use super::shadow_take::ask_in_shadow;
use super::waiting::{AskedAt, denied_behind, left_of};
use crate::callback::{Cause, Instead, caught};
use crate::charge::{Charge, LateCharge, LatePermit, Permit};
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::fleet::OperatorVerdict;
use crate::rule::{OnError, Rule};
use crate::store::capabilities::{Capabilities, DEFAULT_TIMEOUT};
use crate::store::{Store, StoreFuture};
use crate::take::Take;
use crate::trace::{self, TakeSpan};
use crate::waiting::{QueueId, Wait, Waiter};

/// What becomes of a take.
///
/// A decision with a [failure](Decision::failure) was made by a fallback.
#[derive(Clone)]
pub(crate) enum Decided {
    /// No rule limits the request: the late charge of a shadow rule, for refunds by response, and
    /// its permit.
    Pass(Arc<Rule>, Option<Arc<LateCharge>>, Option<LatePermit>),
    /// The charge, the instant since when the request has waited, if it has, and its permit.
    Allowed(Charge, Option<Instant>, Option<Permit>),
    Denied(Take, Decision),
    /// The request is admitted without a decision, by the rule or a callback.
    Proceed(Arc<Rule>, Cause),
    /// There is no decision, and the rule admits nothing without one.
    Failed(Arc<Rule>, Cause),
}

/// How far the decision about a take is.
#[allow(clippy::large_enum_variant, reason = "a box would cost an allocation")]
pub(crate) enum Deciding {
    Done(Decided),
    /// The store has not answered yet.
    Asked(AskedTake),
    /// It is asked about again later.
    Waiting(WaitingTake),
}

pin_project! {
    /// A take about which the store was asked.
    pub(crate) struct AskedTake {
        // Missing once the answer is there.
        question: Option<TakeInFlight>,
        since: Instant,
        #[pin]
        answer: StoreFuture<Decision>,
    }
}

/// What the answer of the store is about.
struct TakeInFlight {
    take: Take,
    moment: Moment,
    wait: Wait,
    /// The span around the call of the store.
    span: TakeSpan,
}

/// The moment at which the store was asked.
struct Moment {
    /// Whether the take reserves less than its request costs.
    is_reduced: bool,
    /// `None` where no request may wait.
    asked: Option<AskedAt>,
    /// If others are before the take in this queue, which has only looked then.
    behind: Option<QueueId>,
}

/// A take that is asked about again later: it was denied, or the store was overloaded.
pub(crate) struct WaitingTake {
    take: Take,
    /// The path's rule when the store was asked last.
    rule: Option<Arc<Rule>>,
    answer: Result<Decision, StoreError>,
    answered_at: Instant,
    waiter: Box<Waiter>,
}

impl Decided {
    /// Nothing limits the request or call.
    pub(crate) fn unlimited(rule: Arc<Rule>) -> Self {
        Self::Pass(rule, None, None)
    }

    /// What the rule says where the store has failed.
    pub(crate) fn unanswered(rule: Arc<Rule>, error: StoreError) -> Self {
        match rule.on_error() {
            Some(OnError::Proceed) => Self::Proceed(rule, Cause::Store(error, Instead::Rule)),
            _ => Self::Failed(rule, Cause::Store(error, Instead::Nothing)),
        }
    }

    /// The same for a caller that wants nothing to proceed.
    pub(crate) fn refused_on_error(self) -> Self {
        match self {
            Self::Proceed(rule, Cause::Store(error, _)) => {
                Self::Failed(rule, Cause::Store(error, Instead::Nothing))
            }
            other => other,
        }
    }

    pub(crate) fn rule(&self) -> &Arc<Rule> {
        match self {
            Self::Allowed(charge, ..) => charge.take().rule(),
            Self::Denied(take, _) => take.rule(),
            Self::Pass(rule, ..) | Self::Proceed(rule, _) | Self::Failed(rule, _) => rule,
        }
    }

    pub(crate) fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Allowed(charge, ..) => Some(charge.decision()),
            Self::Denied(_, decision) => Some(decision),
            Self::Pass(..) | Self::Proceed(..) | Self::Failed(..) => None,
        }
    }
}

impl Deciding {
    /// Waits for the decision. A take that has waited is made `anew` before it is asked about
    /// again.
    pub(crate) async fn decided<E>(
        mut self,
        decider: &Decider,
        mut anew: impl FnMut(Arc<Rule>) -> Result<Take, E>,
    ) -> Result<Decided, E> {
        loop {
            self = match self {
                Self::Done(decided) => return Ok(decided),
                Self::Asked(asked) => {
                    let mut asked = pin!(asked);
                    poll_fn(|cx| asked.as_mut().poll(decider, cx)).await
                }
                Self::Waiting(mut waiting) => {
                    let must_ask = || decider.must_ask(&waiting.take, waiting.rule.as_ref());
                    if !waiting.waiter.turn(must_ask).await {
                        return Ok(decider.gives_up(waiting));
                    }
                    match decider.rule() {
                        None => return Ok(Decided::unlimited(waiting.take.into_rule())),
                        Some(rule) => {
                            let (take, waiter) = (anew(rule)?, waiting.waiter);
                            let was_overloaded = waiter.was_overloaded;
                            let take = if was_overloaded { take } else { take.repeat() };
                            decider.decide(take, Wait::Did(waiter), None)
                        }
                    }
                }
            };
        }
    }
}

impl AskedTake {
    /// When the store was asked.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// How far the decision is once the store has answered.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        decider: &Decider,
        cx: &mut Context<'_>,
    ) -> Poll<Deciding> {
        const DONE: &str = "polled after the answer";
        let this = self.project();
        let span = &this.question.as_ref().expect(DONE).span;
        let answer = ready!(span.in_scope(|| this.answer.poll(cx)));
        let waited = this.since.elapsed();
        decider.path.counters.numbers.latency.add(waited);
        Poll::Ready(decider.judge(this.question.take().expect(DONE), answer, waited))
    }
}

impl Decider {
    /// Decides about a take that has just arrived, or has waited. With why the store gave no
    /// decision to an outer layer of the request.
    #[inline]
    pub(crate) fn decide(
        &self,
        mut take: Take,
        wait: Wait,
        outage: Option<Box<StoreError>>,
    ) -> Deciding {
        match self.operator_keys.verdict(&take) {
            OperatorVerdict::Nothing => {}
            OperatorVerdict::Replace(other) => take = *other,
            OperatorVerdict::LetThrough => return self.let_through(take),
            OperatorVerdict::Blocked(denial) => {
                return Deciding::Done(Decided::Denied(take, *denial));
            }
        }
        let mut moment = self.prepare(&mut take, outage);
        if take.rule().is_shadow() {
            return Deciding::Done(ask_in_shadow(self, take));
        }
        let span = TakeSpan::new(take.rule().path(), || self.store().name());
        if moment.asked.is_some() {
            moment.behind = self.behind(&take, &wait);
        }
        let mut answer = span.in_scope(|| match moment.behind {
            None => ask(self.store(), &take),
            Some(_) => ask(self.store(), &take.clone().looking()),
        });
        // A question in a variable would be copied once more.
        if let Some(answer) = answer.poll_now() {
            return self.judge(
                TakeInFlight {
                    take,
                    moment,
                    wait,
                    span,
                },
                answer,
                Duration::ZERO,
            );
        }
        let since = moment.asked.as_ref().map(|it| it.at);
        Deciding::Asked(AskedTake {
            since: since.unwrap_or_else(Instant::now),
            question: Some(TakeInFlight {
                take,
                moment,
                wait,
                span,
            }),
            answer,
        })
    }

    /// Says in a take what only the moment knows at which the store is asked.
    #[inline]
    fn prepare(&self, take: &mut Take, outage: Option<Box<StoreError>>) -> Moment {
        // Where no request may wait, nobody reads the clock, which costs time.
        let asked = self.waiting.is_on().then(|| self.asked());
        if outage.is_some() {
            take.ask.set_failure(outage);
        }
        if asked.is_some() {
            take.ask.set_patient();
        }
        take.refunds_before = self.path.open.last_refund();
        let is_reduced = take.reserve_max();
        Moment {
            is_reduced,
            asked,
            behind: None,
        }
    }

    /// A request of a key that an operator lets through.
    #[cold]
    fn let_through(&self, take: Take) -> Deciding {
        self.path.counters.numbers.let_through.add(1);
        Deciding::Done(Decided::unlimited(take.into_rule()))
    }

    /// Whether a response may give back what its request was charged.
    pub(super) fn refunds_by_response(&self, rule: &Rule) -> bool {
        self.gives_back || rule.outcomes().is_some()
    }

    /// What becomes of a take whose patience is over, or that lacks what comes too late.
    fn gives_up(&self, waiting: WaitingTake) -> Decided {
        match waiting.answer {
            Ok(decision) => {
                let age = waiting.answered_at.elapsed();
                let denial = self.denied_for_good(&decision, age, &waiting.waiter);
                Decided::Denied(waiting.take, denial)
            }
            Err(error) => self.undecided(waiting.take, error),
        }
    }

    fn undecided(&self, take: Take, error: StoreError) -> Decided {
        self.path.counters.store_failed(error.kind());
        Decided::unanswered(take.into_rule(), error)
    }

    /// What the store's answer means. A denied take that may wait is asked again later.
    fn judge(
        &self,
        mut question: TakeInFlight,
        answer: Result<Decision, StoreError>,
        waited: Duration,
    ) -> Deciding {
        question.span.record(|| told_of(&answer));
        let mut decision = match answer {
            Ok(decision) => decision,
            Err(error) => return self.judge_failure(question, error),
        };
        let (take, wait) = (&mut question.take, question.wait);
        let moment = question.moment;
        let asked = moment.asked;
        if decision.is_late {
            self.log_late(take.rule(), waited);
        }
        self.store_log.decided(decision.source());
        if take.rule().has_hidden() {
            decision.set_hidden(|quota| !take.is_shown_to_clients(quota));
        }
        decision.is_reduced = moment.is_reduced;
        if let Some(failure) = decision.failure() {
            self.path.counters.store_failed(failure.kind());
        }
        let behind = moment.behind.filter(|_| decision.is_allowed());
        if let Some(queue) = behind {
            let at = asked.as_ref().map_or_else(Instant::now, |it| it.at);
            let queues = self.path.open.queues();
            decision = denied_behind(take, &decision, queue, at, |cost, refill| {
                queues.fits_at(queue, cost, refill)
            });
        }
        if decision.is_allowed() {
            let (store, path) = (Arc::clone(self.store()), Arc::clone(&self.path));
            take.ask.set_failure(None);
            let permit = self.refunds.permit_of(&store, take, &decision, &path);
            let may_come_back = take.rule().settles() || self.refunds_by_response(take.rule());
            let (take, path, refunds) = (question.take, Some(path), self.refunds.clone());
            let listeners = self.listeners.clone().map(|it| it as _);
            let mut charge = Charge::decided(store, take, decision, path, refunds, listeners);
            if may_come_back {
                charge = charge.keeping_open();
            }
            let waited_since = match wait {
                Wait::May(_) => None,
                Wait::Did(waiter) => {
                    let since = waiter.since;
                    if let Some(AskedAt { at, .. }) = &asked {
                        let (take, decision) = (charge.take(), charge.decision());
                        let turn = waiter.allowed(|count| left_of(take, decision, count, *at));
                        charge.paid_by(turn.filter(|_| take.lane.is_some()));
                    }
                    Some(since)
                }
            };
            return Deciding::Done(Decided::Allowed(charge, waited_since, permit));
        }
        match self.waits_after_denial(wait, asked.as_ref(), take, &decision, behind) {
            None => Deciding::Done(Decided::Denied(question.take, decision)),
            Some(waiter) => waiting(question.take, asked, Ok(decision), waiter),
        }
    }

    /// A take that may wait for an overloaded store is asked about again in its turn.
    #[cold]
    fn judge_failure(&self, question: TakeInFlight, error: StoreError) -> Deciding {
        let (take, asked) = (question.take, question.moment.asked);
        if error.kind() == StoreErrorKind::Overloaded
            && let Some(waiter) = self.waits_after_overload(question.wait, asked.as_ref(), &take)
        {
            return waiting(take, asked, Err(error), waiter);
        }
        self.log_undecided(take.rule(), &error);
        Deciding::Done(self.undecided(take, error))
    }

    #[cold]
    fn log_late(&self, rule: &Rule, waited: Duration) {
        self.path.counters.numbers.lagged.add(1);
        let timeout = self.capabilities().timeout.unwrap_or(DEFAULT_TIMEOUT);
        let late = waited.saturating_sub(timeout);
        self.store_log.late(rule.shared_path(), late);
    }

    /// Logs that decisions begin to fail, and what becomes of the requests.
    fn log_undecided(&self, rule: &Rule, error: &StoreError) {
        let path = rule.path();
        let instead = match rule.on_error() {
            Some(OnError::Proceed) => "requests are admitted without a limit",
            _ if self.recovers => "the error callback answers",
            _ => "requests are answered 503",
        };
        self.store_log.failed(rule.shared_path(), error, instead);
        let wants_fallback = rule.on_error() == Some(OnError::Fallback);
        if wants_fallback && !self.capabilities().has_fallback {
            self.log.missing_fallback.get_or_init(|| {
                trace::event!(warn: path, "the rule says \"fallback\", but its store has none");
            });
        }
    }
}

fn waiting(
    take: Take,
    asked: Option<AskedAt>,
    answer: Result<Decision, StoreError>,
    waiter: Box<Waiter>,
) -> Deciding {
    Deciding::Waiting(WaitingTake {
        take,
        rule: asked.and_then(|it| it.rule),
        answer,
        answered_at: Instant::now(),
        waiter,
    })
}

/// What a store can do; nothing special if it panics about that.
pub(crate) fn capabilities(store: &Arc<dyn Store>) -> Capabilities {
    caught("store", "", || store.capabilities()).unwrap_or_default()
}

/// A store is not asked for what it does not know: takes over several counts, permits, periods of
/// the calendar.
#[inline]
pub(crate) fn check_capabilities(store: &Arc<dyn Store>, take: &Take) -> Result<(), StoreError> {
    let mut specs = take.counts().iter().map(|it| it.spec());
    let has_calendar = specs.any(|it| it.calendar().is_some());
    if take.is_joint() || has_calendar {
        return check_joint_or_calendar(store, take, has_calendar);
    }
    Ok(())
}

#[cold]
fn check_joint_or_calendar(
    store: &Arc<dyn Store>,
    take: &Take,
    has_calendar: bool,
) -> Result<(), StoreError> {
    let can = capabilities(store);
    let has_permits = take.counts().iter().any(|it| it.spec().is_permits());
    let lacks = if take.is_joint() && !can.joint {
        "does not decide several subjects together: see Capabilities::joint"
    } else if has_permits && !can.permits {
        "keeps no permits of requests in progress: see Capabilities::permits"
    } else if has_calendar && !can.calendar {
        "does not count in periods of the calendar: see Capabilities::calendar"
    } else {
        return Ok(());
    };
    let message = format!("the store {} {lacks}", store.name());
    Err(StoreError::new(StoreErrorKind::Configuration, message))
}

/// Asks the store. One that has just failed an outer layer of the same request is not asked, unless
/// it has a fallback.
#[inline]
pub(crate) fn ask(store: &Arc<dyn Store>, take: &Take) -> StoreFuture<Decision> {
    if let Err(error) = check_capabilities(store, take) {
        return StoreFuture::ready(Err(error));
    }
    match take.failure() {
        Some(failure) if !capabilities(store).has_fallback => {
            StoreFuture::ready(Err(failure.clone()))
        }
        _ => store.take(take),
    }
}
