use std::sync::Arc;
use std::time::Duration;

use axum_core::response::Response;
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, StatusCode, Uri};
use tokio::time::Instant;

use super::action::{Action, Admission, Refusal, forbid_storing, marked};
use super::decisions::{Decided, Deciding, WaitingTake};
use super::gate::Gate;
use super::headers::{set_retry_after, shown_retry_after, whole_seconds};
use super::outer_layers::{Outage, WaitingSince};
use crate::callback::{
    AnswerForm, AnswerReason, Cause, DegradeCallback, Denied, ErrorCallback, Failed, Instead,
    Recovery, RetryAfter, grpc, guarded, key_refused, recover,
};
use crate::charge::{Charge, Denial, LayerResponse, Permit};
use crate::decision::{Decision, QuotaState, Source};
use crate::error::StoreError;
use crate::question::CountAsk;
use crate::rule::Rule;
use crate::take::Take;

impl Gate {
    /// What becomes of a request with this head that waits.
    pub(super) async fn act_after_waiting(
        self: Arc<Self>,
        waiting: WaitingTake,
        mut head: Parts,
    ) -> Action {
        let anew = |rule| self.read_head(self.options.reads(&rule), &mut head);
        let decided = Deciding::Waiting(waiting).decided(&self.decider, anew);
        let decided = decided.await;
        decided.map_or_else(|action| *action, |decided| self.act(decided))
    }

    /// What a decided take means for the request. If something failed, the error callback comes first;
    /// where the rule or a fallback has decided, only one that wants to.
    #[inline]
    pub(crate) fn act(self: &Arc<Self>, decided: Decided) -> Action {
        match (decided, &self.options.on_error) {
            // Most requests: nothing has failed, and no callback is asked.
            (Decided::Allowed(charge, waiting_since, permit), _)
                if charge.decision().failure().is_none() =>
            {
                let decider = &self.decider;
                decider.count_decision(charge.take(), charge.decision());
                Action::Admit(self.admit_charged(charge, waiting_since, permit))
            }
            (decided, Some(callback)) if decided.is_for(&**callback) => {
                Action::Recover(Arc::clone(callback), decided)
            }
            (decided, _) => self.carry_out(decided),
        }
    }

    /// Does what was decided.
    #[inline]
    fn carry_out(self: &Arc<Self>, decided: Decided) -> Action {
        match (self.admission(decided), &self.options.degrade) {
            (Ok(None), _) => Action::Pass,
            (Ok(Some(admitted)), _) => Action::Admit(admitted),
            (Err(Refusal::Denied(take, decision)), Some(callback)) => {
                Action::Degrade(Arc::clone(callback), take, decision)
            }
            (Err(refusal), _) => Action::Refuse(refusal),
        }
    }

    /// Counts what was decided, and says whether a request or a call goes on. One that nothing limits
    /// has no admission.
    #[inline]
    #[allow(clippy::result_large_err, reason = "a box would cost an allocation")]
    pub(super) fn admission(
        self: &Arc<Self>,
        decided: Decided,
    ) -> Result<Option<Admission>, Refusal> {
        self.decider.count(&decided);
        Ok(Some(match decided {
            Decided::Pass(_, None, None) => return Ok(None),
            Decided::Pass(rule, shadow, permit) => {
                let mut admitted = self.admit(rule);
                (admitted.shadow, admitted.permit_in_shadow) = (shadow, permit);
                admitted
            }
            Decided::Allowed(charge, waiting_since, permit) => {
                self.admit_charged(charge, waiting_since, permit)
            }
            Decided::Denied(take, decision) => return Err(Refusal::Denied(take, decision)),
            Decided::Proceed(rule, cause) => {
                let mut admitted = self.admit(rule);
                if let Cause::Store(error, _) = cause {
                    admitted.outage = self.outage(&error);
                }
                admitted
            }
            Decided::Failed(rule, cause) => return Err(Refusal::Failed(rule, cause)),
        }))
    }

    /// Admits a request that was charged.
    #[inline]
    fn admit_charged(
        self: &Arc<Self>,
        charge: Charge,
        waiting_since: Option<Instant>,
        permit: Option<Permit>,
    ) -> Admission {
        let failure = charge.decision().failure();
        let outage = failure.and_then(|failure| self.outage(failure));
        let mut admitted = self.admit(Arc::clone(charge.take().rule()));
        (admitted.answer, admitted.permit) = (Some(charge), permit);
        (admitted.waiting_since, admitted.outage) = (waiting_since, outage);
        admitted
    }

    /// Admits a request without a decision.
    #[inline]
    pub(crate) fn admit(self: &Arc<Self>, rule: Arc<Rule>) -> Admission {
        Admission {
            rule,
            answer: None,
            shadow: None,
            permit: None,
            permit_in_shadow: None,
            gate: Arc::clone(self),
            head: None,
            waiting_since: None,
            outage: None,
            is_connect: false,
            is_answered: false,
        }
    }

    /// The outage that inner layers have to know of.
    fn outage(&self, error: &StoreError) -> Option<Box<Outage>> {
        Outage::find(self.decider.store.get()?, error).map(Box::new)
    }

    /// What the error callback says about a request with this head. If it propagates the error, the
    /// decided take stays what it is.
    pub(super) async fn recover(
        self: Arc<Self>,
        callback: Arc<dyn ErrorCallback>,
        decided: Decided,
        mut head: Parts,
        arrived: Option<Instant>,
    ) -> Action {
        let Some(cause) = decided.cause() else {
            return self.carry_out(decided);
        };
        let form = self.form_of(&head, arrived);
        let rule = Arc::clone(decided.rule());
        let pause = self.pause(&rule);
        head.extensions.insert(RetryAfter(pause));
        let failed = Failed::new(rule, head, cause.clone());
        let recovery = match recover(&*callback, failed).await {
            Err(panicked) => return Action::Panicked(panicked),
            Ok(recovery) => recovery,
        };
        match decided.recovered(cause, recovery) {
            Ok(decided) => self.carry_out(decided),
            Err(response) => Action::Respond(self.failed(pause, response, &form)),
        }
    }

    /// The form of the answer to a request, which arrived then, or just now.
    pub(super) fn form(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        extensions: &Extensions,
        arrived: Option<Instant>,
    ) -> AnswerForm {
        // An outer layer may have let it wait.
        let arrived = || {
            let outer = extensions.get().map(|WaitingSince(since)| *since);
            outer.or(arrived).unwrap_or_else(Instant::now)
        };
        AnswerForm::new(self.options.form, method, uri, headers, arrived)
    }

    pub(super) fn form_of(&self, head: &Parts, arrived: Option<Instant>) -> AnswerForm {
        let (method, uri) = (&head.method, &head.uri);
        self.form(method, uri, &head.headers, &head.extensions, arrived)
    }

    /// This crate's own answer in this form.
    pub(super) fn answer(&self, refusal: Refusal, form: &AnswerForm) -> Response {
        match refusal {
            Refusal::Denied(take, decision) => {
                let shown = self.shown(&take, &decision);
                let reason = AnswerReason::of_denial(take.rule(), &decision);
                let response = reason.answer(form, shown.retry_after);
                self.denied(take.rule(), decision, shown, form, response)
            }
            Refusal::Failed(_, Cause::Key(error)) => marked(key_refused(&error, form)),
            Refusal::Failed(of, _) => {
                let pause = self.pause(&of);
                self.failed(pause, AnswerReason::NoDecision.answer(form, pause), form)
            }
        }
    }

    /// In how many seconds a client is told to come again, since the store is asked again then.
    pub(super) fn pause(&self, rule: &Rule) -> Option<u64> {
        let pause = self.decider.capabilities().probe_every;
        Some(shown_retry_after(rule, pause.unwrap_or_default()))
    }

    /// The answer to a request without a decision. A 503 says when to come again.
    pub(super) fn failed(
        &self,
        pause: Option<u64>,
        mut answer: Response,
        form: &AnswerForm,
    ) -> Response {
        let is_stream = matches!(form, AnswerForm::ConnectStream(_));
        if answer.status() == StatusCode::SERVICE_UNAVAILABLE || is_stream {
            set_retry_after(pause, answer.headers_mut());
        }
        let pause = pause.map(Duration::from_secs);
        grpc::add_pushback(pause, form.grpc(), false, answer.headers_mut());
        marked(answer)
    }

    /// The degrade callback's answer to a denied request with this head, which arrived then.
    pub(super) async fn degrade(
        self: Arc<Self>,
        callback: Arc<dyn DegradeCallback>,
        take: Take,
        decision: Decision,
        mut head: Parts,
        arrived: Option<Instant>,
    ) -> Response {
        let rule = Arc::clone(take.rule());
        let shown = self.shown(&take, &decision);
        let form = self.form_of(&head, arrived);
        head.extensions.insert(RetryAfter(shown.retry_after));
        let denied = Denied::new(take, decision.clone(), head);
        let response = guarded("degrade callback", rule.path(), || callback.degrade(denied));
        let response = response.await.unwrap_or_else(|panicked| {
            let mistake = AnswerReason::Mistake(StatusCode::INTERNAL_SERVER_ERROR, &panicked);
            mistake.answer(&form, shown.retry_after)
        });
        self.denied(&rule, decision, shown, &form, response)
    }

    /// What a client is told of a denial.
    fn shown(&self, take: &Take, decision: &Decision) -> Shown {
        let retry_soon = self.retry_soon_if_refunds_are_open(take, decision);
        let decision = retry_soon.as_ref().unwrap_or(decision);
        let retry_after = decision.retry_after();
        Shown {
            retry_after: retry_after.map(|it| shown_retry_after(take.rule(), it)),
            retry_soon,
        }
    }

    /// The denial with an earlier retry-after for the client, while this process may give back
    /// units that would make room: the client comes again soon. `None` if it is shown as it is.
    fn retry_soon_if_refunds_are_open(&self, take: &Take, decision: &Decision) -> Option<Decision> {
        const SOON: Duration = Duration::from_secs(1);
        let is_held = decision.source() == Source::Operator || decision.is_locked_out();
        let may_have_room = !is_held && {
            let counts = take.states(decision).zip(take.denials(decision));
            let mut denying = counts.filter_map(|(count, is_denied)| is_denied.then_some(count));
            denying.all(|(count, states)| self.may_have_room(take, count, states))
        };
        may_have_room.then(|| decision.within(SOON))
    }

    /// Whether units of this count were given back after the store had decided, or may be given
    /// back so that there is room.
    fn may_have_room<'a>(
        &self,
        take: &Take,
        count: &CountAsk,
        states: impl Iterator<Item = &'a QuotaState>,
    ) -> bool {
        let (hash, mut states) = (count.hash(), states.peekable());
        let open = self.decider.path.open.units(hash);
        let has_room = |state: &QuotaState| state.remaining().saturating_add(open) >= count.cost();
        self.decider
            .path
            .open
            .refunded_since(take.refunds_before, hash)
            || open > 0 && states.peek().is_some() && states.all(has_room)
    }

    /// The answer to a denied request, with what shows the decision that the client sees.
    fn denied(
        &self,
        rule: &Rule,
        decision: Decision,
        shown: Shown,
        form: &AnswerForm,
        mut response: Response,
    ) -> Response {
        let (retry_after, soon) = (shown.retry_after, shown.retry_soon);
        let shown = soon.as_ref().unwrap_or(&decision);
        forbid_storing(response.headers_mut());
        let is_behind = rule.is_outgoing();
        self.options.show(rule, shown, retry_after, &mut response);
        let headers = response.headers_mut();
        grpc::add_details(rule, shown, retry_after, headers);
        // In milliseconds, with the seconds that were added.
        let wait = shown.retry_after().zip(retry_after).map(|(wait, told)| {
            wait.saturating_add(Duration::from_secs(told - whole_seconds(wait)))
        });
        grpc::add_pushback(wait, form.grpc(), is_behind, headers);
        let refunds = self.decider.refunds.clone();
        let mark = LayerResponse {
            denial: Some(Denial { decision, refunds }),
            is_of_check: false,
            is_behind,
        };
        response.extensions_mut().insert(mark);
        response
    }
}

/// What a client is told of a denial, where it differs from the decision.
struct Shown {
    /// In so many seconds it may come again; `None` if no wait helps.
    retry_after: Option<u64>,
    retry_soon: Option<Decision>,
}

impl Decided {
    /// Whether nothing has decided, or only the rule or a fallback, about which the callback wants
    /// to know.
    pub(super) fn is_for<A>(&self, callback: &(impl ErrorCallback<A> + ?Sized)) -> bool {
        match self {
            Self::Failed(..) => true,
            decided => callback.also_with_fallback() && decided.cause().is_some(),
        }
    }

    /// What an error callback has made of it: what goes on, or its answer.
    pub(super) fn recovered<A>(self, cause: Cause, recovery: Recovery<A>) -> Result<Self, A> {
        match recovery {
            Recovery::Respond(answer) => Err(answer),
            // A request without a key may not: a client could lift its limit by leaving it out.
            Recovery::Proceed if !matches!(cause, Cause::Key(_)) => {
                Ok(Self::Proceed(Arc::clone(self.rule()), cause))
            }
            Recovery::Proceed | Recovery::Propagate => Ok(self),
        }
    }

    /// The cause for the error callback.
    pub(super) fn cause(&self) -> Option<Cause> {
        if let Self::Failed(_, cause) | Self::Proceed(_, cause) = self {
            return Some(cause.clone());
        }
        let decision = self.decision()?;
        let failure = decision.failure()?.clone();
        Some(Cause::Store(failure, Instead::Fallback(decision.clone())))
    }
}
