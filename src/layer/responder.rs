use std::fmt;
use std::sync::{Arc, OnceLock};

use axum_core::response::Response;
use http::request::Parts;
use http::{HeaderValue, Request};

use super::action::{Action, Admission, Refusal, WriteFields, marked};
use super::decide::Verdict;
use super::outage::Outage;
use super::outcome::OutcomeRefunds;
use crate::callback::{
    Cause, DegradeCallback, Denied, ErrorCallback, Failed, Recovery, caught, grpc, guarded,
    internal_error, key_refused, quota_exceeded, recover, reduced_capacity,
};
use crate::decision::Decision;
use crate::error::{KeyError, KeyErrorKind, StoreError};
use crate::key::{Key, KeyExtractor};
use crate::metrics::{DecisionOutcome, RuleCounters};
#[cfg(feature = "tracing")]
use crate::rule::Policy;
use crate::rule::{OnError, Rule};
use crate::store::{Charge, LateCharge, LayerResponse, Store, Take};
use crate::trace::{self, TakeSpan};

/// Turns verdicts into what becomes of requests, by the callbacks of a layer. Both layers of this
/// crate have one.
#[derive(Clone)]
pub(crate) struct Responder {
    pub(crate) key: Option<Arc<dyn KeyExtractor>>,
    /// For a rule without a key.
    pub(super) default_key: Option<Arc<dyn KeyExtractor>>,
    pub(crate) degrade: Option<Arc<dyn DegradeCallback>>,
    pub(crate) on_error: Option<Arc<dyn ErrorCallback>>,
    pub(crate) write_fields: WriteFields,
    pub(crate) counters: Arc<RuleCounters>,
    /// The store of the layer. Empty for one that asks none.
    pub(super) store: Arc<OnceLock<Arc<dyn Store>>>,
    pub(super) outcome: OutcomeRefunds,
    /// Whether events contain the hashes of keys.
    #[cfg(feature = "tracing")]
    pub(crate) traces_keys: bool,
    /// Whether it was logged that the server does not provide what the key is made of.
    is_key_error_logged: Arc<OnceLock<()>>,
}

impl Responder {
    pub(crate) fn new(write_fields: WriteFields) -> Self {
        Self {
            key: None,
            default_key: None,
            degrade: None,
            on_error: None,
            write_fields,
            counters: Arc::default(),
            store: Arc::default(),
            outcome: OutcomeRefunds::default(),
            #[cfg(feature = "tracing")]
            traces_keys: false,
            is_key_error_logged: Arc::default(),
        }
    }

    /// The layer's own extractor comes before the rule's, and that before the default.
    pub(crate) fn extractor<'a>(&'a self, rule: &'a Rule) -> Option<&'a dyn KeyExtractor> {
        let own = self.key.as_deref().or(rule.extractor());
        own.or(self.default_key.as_deref())
    }

    /// The key of the request with this head, or what becomes of a request without one. A panic of
    /// the extractor is answered with a 500.
    pub(crate) fn extract(
        self: &Arc<Self>,
        rule: &Arc<Rule>,
        head: &Parts,
    ) -> Result<Key, Box<Action>> {
        let Some(extractor) = self.extractor(rule) else {
            return Ok(Key::default());
        };
        let action = match caught("key extractor", rule.path(), || extractor.extract(head)) {
            Ok(Ok(key)) => return Ok(key),
            Ok(Err(error)) => {
                self.counters.key_failed(error.kind());
                self.log_key_error(rule.path(), &error);
                self.act(Verdict::Failed(Arc::clone(rule), Cause::Key(error)))
            }
            Err(panicked) => panicked.into(),
        };
        Err(Box::new(action))
    }

    /// Logs the server's mistakes. Clients could fill the log with theirs.
    fn log_key_error(&self, path: &str, error: &KeyError) {
        if error.kind() == KeyErrorKind::Server {
            self.is_key_error_logged.get_or_init(|| {
                let error = error.to_string();
                trace::event!(warn: path, error, "requests have no key: answered with a 500");
            });
        }
    }

    /// What a verdict means for the request. If something failed, the error callback comes first;
    /// where a fallback has decided, only one that wants to.
    #[inline]
    pub(crate) fn act(self: &Arc<Self>, verdict: Verdict) -> Action {
        match &self.on_error {
            Some(callback) if verdict.is_for(&**callback) => {
                Action::Recover(Arc::clone(callback), Box::new(verdict))
            }
            _ => self.carry_out(verdict),
        }
    }

    /// Counts the decision of a request, and logs a denial: once, however often it has asked, and
    /// not where an error callback answers in place of the decision.
    pub(super) fn count(&self, verdict: &Verdict) {
        match verdict {
            Verdict::Allowed(answer) => {
                let take = answer.take();
                self.counters
                    .decided(take.rule(), answer.decision(), take.cost());
            }
            Verdict::Denied(take, decision) => {
                self.counters.decided(take.rule(), decision, take.cost());
                self.counters.denied(take.count_name(), decision);
                self.log_denial(take, decision);
            }
            Verdict::Failed(..) => {}
        }
    }

    /// Counts the request, and does what the verdict says. Without a decision that is what the rule
    /// says.
    fn carry_out(self: &Arc<Self>, verdict: Verdict) -> Action {
        self.count(&verdict);
        match verdict {
            Verdict::Allowed(answer) => {
                let failure = answer.decision().failure();
                let outage = failure.and_then(|error| self.outage(error));
                let mut admitted = self.admit(Arc::clone(answer.take().rule()), Some(answer));
                admitted.outage = outage;
                Action::Admit(admitted)
            }
            Verdict::Denied(take, decision) => match self.degrade.clone() {
                None => Action::Refuse(Refusal::Denied(take.into_rule(), decision)),
                Some(callback) => Action::Degrade(Box::new((callback, take, decision))),
            },
            Verdict::Failed(_, Cause::Key(error)) => Action::Refuse(Refusal::NoKey(error)),
            Verdict::Failed(rule, cause) if rule.on_error() == Some(OnError::Proceed) => {
                self.proceed(rule, &cause)
            }
            Verdict::Failed(..) => Action::Refuse(Refusal::NoDecision),
        }
    }

    pub(crate) fn admit(self: &Arc<Self>, rule: Arc<Rule>, answer: Option<Charge>) -> Admission {
        Admission {
            rule,
            answer,
            shadow: None,
            is_grpc: false,
            permit: None,
            responder: Arc::clone(self),
            head: None,
            outage: None,
        }
    }

    /// Admits a request that a shadow rule may have charged.
    pub(super) fn admit_in_shadow(
        self: &Arc<Self>,
        rule: Arc<Rule>,
        charge: Arc<LateCharge>,
    ) -> Admission {
        Admission {
            shadow: Some(charge),
            ..self.admit(rule, None)
        }
    }

    /// Admits a request without a decision.
    fn proceed(self: &Arc<Self>, rule: Arc<Rule>, cause: &Cause) -> Action {
        self.counters.proceeded();
        let mut admitted = self.admit(rule, None);
        if let Cause::Store(error, _) = cause {
            admitted.outage = self.outage(error);
        }
        Action::Admit(admitted)
    }

    /// The outage that inner layers have to know of.
    fn outage(&self, error: &StoreError) -> Option<Box<Outage>> {
        let store = self.store.get()?;
        Outage::of(store, error).map(Box::new)
    }

    /// This crate's own answer to a request.
    pub(super) fn refuse<B>(&self, refusal: Refusal, request: &Request<B>) -> Response {
        let grpc = grpc::content_type(request.method(), request.headers());
        self.answer(refusal, grpc)
    }

    /// The same for a gRPC request with this content type, or an HTTP request.
    pub(super) fn answer(&self, refusal: Refusal, grpc: Option<&HeaderValue>) -> Response {
        match refusal {
            Refusal::Denied(rule, decision) => {
                let response = quota_exceeded(&rule, &decision, grpc);
                self.denied(&rule, decision, response)
            }
            Refusal::NoDecision => marked(reduced_capacity(grpc)),
            Refusal::NoKey(error) => marked(key_refused(&error, grpc)),
            Refusal::Panicked(panicked) => marked(internal_error(&panicked, grpc)),
        }
    }

    /// The degrade callback's answer to a denied request with this head.
    pub(super) async fn degrade(
        self: Arc<Self>,
        callback: Arc<dyn DegradeCallback>,
        take: Take,
        decision: Decision,
        head: Parts,
    ) -> Response {
        let rule = Arc::clone(take.rule());
        let grpc = grpc::content_type(&head.method, &head.headers).cloned();
        let denied = Denied::new(take, decision.clone(), head);
        let response = guarded("degrade callback", rule.path(), || callback.degrade(denied));
        let response = response.await;
        let response = response.unwrap_or_else(|panicked| internal_error(&panicked, grpc.as_ref()));
        self.denied(&rule, decision, response)
    }

    /// The answer to a denied request, with what shows the decision.
    fn denied(&self, rule: &Arc<Rule>, decision: Decision, mut response: Response) -> Response {
        (self.write_fields)(rule, &decision, response.headers_mut());
        let denial = LayerResponse(Some(decision));
        response.extensions_mut().insert(denial);
        response
    }

    /// What the error callback says about a request with this head. If it propagates the error, the
    /// verdict stands.
    pub(super) async fn recover(
        self: Arc<Self>,
        callback: Arc<dyn ErrorCallback>,
        verdict: Verdict,
        head: Parts,
    ) -> Action {
        let Some((rule, cause)) = verdict.failure() else {
            return self.carry_out(verdict);
        };
        // A request without a key may not: a client could lift its limit by leaving the key out.
        let may_proceed = !matches!(cause, Cause::Key(_));
        let failed = Failed::new(Arc::clone(&rule), head, cause.clone());
        match recover(&*callback, failed).await {
            Err(panicked) => panicked.into(),
            Ok(Recovery::Respond(response)) => Action::Respond(marked(response)),
            Ok(Recovery::Proceed) if may_proceed => self.proceed(rule, &cause),
            Ok(Recovery::Proceed | Recovery::Propagate) => self.carry_out(verdict),
        }
    }
}

impl Verdict {
    /// Whether there is no decision, or only a fallback's about which the callback wants to know.
    fn is_for(&self, callback: &dyn ErrorCallback) -> bool {
        match self {
            Self::Allowed(answer) => {
                answer.decision().failure().is_some() && callback.also_with_fallback()
            }
            Self::Denied(_, decision) => {
                decision.failure().is_some() && callback.also_with_fallback()
            }
            Self::Failed(..) => true,
        }
    }

    /// The rule, and the cause for the error callback.
    fn failure(&self) -> Option<(Arc<Rule>, Cause)> {
        let (rule, decision) = match self {
            Self::Allowed(answer) => (answer.take().rule(), answer.decision()),
            Self::Denied(take, decision) => (take.rule(), decision),
            Self::Failed(rule, cause) => return Some((Arc::clone(rule), cause.clone())),
        };
        let cause = Cause::Store(decision.failure()?.clone(), Some(decision.clone()));
        Some((Arc::clone(rule), cause))
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").finish_non_exhaustive()
    }
}

// What a layer tells `tracing` about its decisions.
//
// | level | what | how often |
// |---|---|---|
// | warn | decisions begin to fail, and are made again | once for each change |
// | info | a summary: requests denied and allowed since the one before | for each rule, at a denial, at most every 10 s |
// | debug | a denial: its quotas without room, cost, retry-after, store | for each denial |
// | debug | the span `tidegate.take` around the call of the store | for each question |
//
// Keys are in none of them, unless [`trace_hashed_keys`] asks for their hashes. Nothing is
// formatted that no subscriber wants, and without the feature `tracing` nothing is left of this.
//
// [`trace_hashed_keys`]: super::RateLimitLayer

impl TakeSpan {
    /// The end of the span.
    #[inline]
    pub(super) fn record_answer(&self, answer: &Result<Decision, StoreError>) {
        match answer {
            Ok(decision) => {
                self.record("outcome", || {
                    DecisionOutcome::of(decision).name().to_owned()
                });
                self.record("source", || decision.source().name().to_owned());
            }
            Err(error) => self.record("error", || error.to_string()),
        }
    }
}

impl Responder {
    /// A debug event for each denial, and a summary of the rule's denials at most every 10 s.
    #[inline]
    pub(super) fn log_denial(&self, take: &Take, decision: &Decision) {
        #[cfg(feature = "tracing")]
        {
            let path = take.rule().path();
            if tracing::enabled!(tracing::Level::DEBUG) {
                self.log_one_denial(take, decision);
            }
            if let Some(summary) = self.counters.denial_summary() {
                let (denied, allowed) = (summary.denied, summary.allowed);
                let seconds = summary.since.as_millis() as f64 / 1_000.0;
                tracing::info!(path, denied, allowed, seconds, "requests were denied");
            }
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (take, decision);
    }

    #[cfg(feature = "tracing")]
    fn log_one_denial(&self, take: &Take, decision: &Decision) {
        let quotas = decision.denied_by(take.rule().policies());
        let quotas: Vec<_> = quotas.map(Policy::name).collect();
        let key = self.traces_keys.then(|| {
            let hashed = crate::key::Key::default().with_secret(take.key().as_str());
            tracing::field::display(hashed)
        });
        tracing::debug!(
            path = take.rule().path(),
            quotas = quotas.join(","),
            cost = take.cost(),
            // Rounded to milliseconds, which a log shows without the noise of a double.
            retry_after_seconds = decision
                .retry_after()
                .map(|time| time.as_millis() as f64 / 1_000.0),
            source = decision.source().name(),
            key,
            "denied"
        );
    }
}
