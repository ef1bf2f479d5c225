use std::fmt;
use std::sync::{Arc, OnceLock};

use http::request::Parts;

use super::outcome::{Admitted, Outcome, WriteDecision};
use crate::callback::{
    Cause, DegradeCallback, Denied, ErrorCallback, Failed, Recovery, caught, guarded, key_refused,
    quota_exceeded, recover,
};
use crate::decision::Decision;
use crate::error::{KeyError, KeyErrorKind};
use crate::in_flight_counter::InFlightCounter;
use crate::key::{Key, KeyExtractor};
use crate::metrics::RuleCounters;
use crate::rule::Rule;
use crate::store::Take;
use crate::trace;

/// The settings that both layers have.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) key: Option<Arc<dyn KeyExtractor>>,
    pub(crate) degrade: Option<Arc<dyn DegradeCallback>>,
    pub(crate) on_error: Option<Arc<dyn ErrorCallback>>,
    pub(crate) write_decision: WriteDecision,
    pub(crate) counters: Arc<RuleCounters>,
    /// Takes of shadow rules that wait for an answer.
    pub(crate) shadows: InFlightCounter,
    /// Whether the log was told that the server does not provide what the key is made of.
    is_key_error_logged: Arc<OnceLock<()>>,
}

impl Options {
    pub(crate) fn new(write_decision: WriteDecision) -> Self {
        Self {
            key: None,
            degrade: None,
            on_error: None,
            write_decision,
            counters: Arc::default(),
            shadows: InFlightCounter::default(),
            is_key_error_logged: Arc::default(),
        }
    }

    /// The layer's own extractor comes before the rule's.
    pub(crate) fn extractor<'a>(&'a self, rule: &'a Rule) -> Option<&'a dyn KeyExtractor> {
        self.key.as_deref().or(rule.extractor())
    }

    /// The key of the request with this head. A panic of the extractor is answered with a 500.
    pub(crate) fn extract(&self, rule: &Arc<Rule>, head: &Parts) -> Result<Key, Box<Outcome>> {
        let Some(extractor) = self.extractor(rule) else {
            return Ok(Key::default());
        };
        match caught("key extractor", rule.path(), || extractor.extract(head)) {
            Ok(Ok(key)) => Ok(key),
            Ok(Err(error)) => {
                self.counters.key_failed(error.kind());
                self.log_key_error(rule.path(), &error);
                let otherwise = Outcome::Respond(key_refused(error.kind()));
                let outcome = self.fail(Arc::clone(rule), Cause::Key(error), otherwise);
                Err(Box::new(outcome))
            }
            Err(panicked) => Err(Box::new(Outcome::Respond(panicked.into()))),
        }
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

    pub(crate) fn admit(&self, rule: Arc<Rule>) -> Admitted {
        Admitted::new(
            rule,
            Arc::clone(&self.write_decision),
            self.on_error.clone(),
        )
    }

    pub(crate) fn deny(&self, take: Take, decision: Decision) -> Outcome {
        let Some(callback) = self.degrade.clone() else {
            let mut response = quota_exceeded(take.rule(), &decision, take.cost());
            (self.write_decision)(take.rule(), decision, &mut response);
            return Outcome::Respond(response);
        };
        let write_decision = Arc::clone(&self.write_decision);
        Outcome::Deny(Box::new(move |head| {
            Box::pin(async move {
                let rule = Arc::clone(take.rule());
                let denied = Denied::new(take, decision.clone(), head);
                let response =
                    guarded("degrade callback", rule.path(), || callback.degrade(denied));
                let mut response = response.await.unwrap_or_else(Into::into);
                write_decision(&rule, decision, &mut response);
                response
            })
        }))
    }

    /// Calls the error callback. Without one, and if it propagates the error, the outcome is
    /// `otherwise`.
    pub(crate) fn fail(&self, rule: Arc<Rule>, cause: Cause, otherwise: Outcome) -> Outcome {
        self.fail_unless(rule, cause, || {}, otherwise)
    }

    /// The same. `propagated` is called if the outcome is `otherwise`.
    pub(crate) fn fail_unless(
        &self,
        rule: Arc<Rule>,
        cause: Cause,
        propagated: impl FnOnce() + Send + 'static,
        otherwise: Outcome,
    ) -> Outcome {
        let Some(callback) = self.on_error.clone() else {
            propagated();
            return counted(otherwise, &self.counters);
        };
        // A request without a key may not: a client could lift its limit by leaving the key out.
        let may_proceed = !matches!(cause, Cause::Key(_));
        let proceed = self.admit(Arc::clone(&rule));
        let counters = Arc::clone(&self.counters);
        Outcome::Fail(Box::new(move |head| {
            Box::pin(async move {
                let outcome = match recover(&*callback, Failed::new(rule, head, cause)).await {
                    Recovery::Respond(response) => Outcome::Respond(response),
                    Recovery::Proceed if may_proceed => Outcome::Admit(proceed),
                    Recovery::Proceed | Recovery::Propagate => {
                        propagated();
                        otherwise
                    }
                };
                counted(outcome, &counters)
            })
        }))
    }
}

/// Counts a request that is admitted without a decision.
fn counted(outcome: Outcome, counters: &RuleCounters) -> Outcome {
    if matches!(&outcome, Outcome::Admit(admitted) if admitted.decision.is_none()) {
        counters.proceeded();
    }
    outcome
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").finish_non_exhaustive()
    }
}
