use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum_core::response::Response;
use http::request::Parts;

use super::Headers;
use crate::callback::{
    BoxFuture, DegradeCallback, Denied, ErrorCallback, Failed, Recovery, caught, guarded,
    quota_exceeded, reduced_capacity,
};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::key::{Key, KeyExtractor};
use crate::rule::{OnError, Rule, SharedRules};
use crate::store::{Store, Take, single};
use crate::trace;

/// What a layer was told, shared by all services that it made.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) rule: RuleSource,
    pub(super) store: Arc<dyn Store>,
    pub(super) key: Option<Arc<dyn KeyExtractor>>,
    pub(super) cost: Option<Arc<Cost>>,
    pub(super) exempt: Option<Arc<Exempt>>,
    pub(super) degrade: Option<Arc<dyn DegradeCallback>>,
    pub(super) on_error: Option<Arc<dyn ErrorCallback>>,
    pub(super) headers: Headers,
    /// Whether the last decision failed: told once when it begins and once when it ends.
    pub(super) failing: Arc<AtomicBool>,
}

type Cost = dyn Fn(&Parts) -> u64 + Send + Sync;
type Exempt = dyn Fn(&Parts) -> bool + Send + Sync;

#[derive(Debug, Clone)]
pub(super) enum RuleSource {
    Fixed(Arc<Rule>),
    Named { rules: SharedRules, path: Arc<str> },
}

/// What becomes of a request.
pub(super) enum Outcome {
    /// On to the handler; the mark is missing where there is no decision.
    Proceed(Parts, Option<Mark>),
    Answer(Response),
}

/// What an allowed request's response has to show.
pub(super) struct Mark {
    pub(super) rule: Arc<Rule>,
    pub(super) decision: Decision,
}

/// An outcome that is known, or one that a store or a callback still has to find.
pub(super) enum Settled {
    Now(Outcome),
    Later(BoxFuture<'static, Outcome>),
}

impl Settings {
    /// The rule as it stands now; none means that nothing is limited.
    pub(super) fn rule(&self) -> Option<Arc<Rule>> {
        match &self.rule {
            RuleSource::Fixed(rule) => Some(Arc::clone(rule)),
            RuleSource::Named { rules, path } => rules.peek().get(path).cloned(),
        }
    }

    /// Straight from a request's head to its outcome.
    pub(super) fn decide(self: &Arc<Self>, rule: Arc<Rule>, head: Parts) -> Settled {
        let take = match self.question(&rule, &head) {
            Ok(Some(take)) => take,
            Ok(None) => return Settled::Now(Outcome::Proceed(head, None)),
            Err(Unasked::Panicked(response)) => return Settled::Now(Outcome::Answer(response)),
            Err(Unasked::Key(error)) => {
                return self.failed(Failed::key(rule, head.clone(), error), head);
            }
        };
        match self.store.take(std::slice::from_ref(&take)).into_ready() {
            Some(answer) => self.settle(take, answer.and_then(single), head),
            None => Settled::Later(Box::pin(Arc::clone(self).ask(take, head))),
        }
    }

    /// Runs the user's code that makes a take of a request; `None` if it is exempt.
    fn question(&self, rule: &Arc<Rule>, head: &Parts) -> Result<Option<Take>, Unasked> {
        let path = rule.path();
        if let Some(exempt) = &self.exempt
            && caught("exemption", path, || exempt(head)).map_err(Unasked::panicked)?
        {
            return Ok(None);
        }
        let key = match self.key.as_deref().or(rule.extractor()) {
            None => Key::default(),
            Some(extractor) => caught("key extractor", path, || extractor.extract(head))
                .map_err(Unasked::panicked)?
                .map_err(Unasked::Key)?,
        };
        let take = Take::new(Arc::clone(rule), key);
        let Some(cost) = &self.cost else {
            return Ok(Some(take));
        };
        let cost = caught("cost", path, || cost(head)).map_err(Unasked::panicked)?;
        Ok(Some(take.cost(cost)))
    }

    async fn ask(self: Arc<Self>, take: Take, head: Parts) -> Outcome {
        let answer = self.store.take(std::slice::from_ref(&take)).await;
        match self.settle(take, answer.and_then(single), head) {
            Settled::Now(outcome) => outcome,
            Settled::Later(outcome) => outcome.await,
        }
    }

    fn settle(
        self: &Arc<Self>,
        take: Take,
        answer: Result<Decision, StoreError>,
        head: Parts,
    ) -> Settled {
        self.tell_transition(take.rule(), &answer);
        match answer {
            Ok(decision) if decision.is_allowed() => {
                let rule = Arc::clone(take.rule());
                Settled::Now(Outcome::Proceed(head, Some(Mark { rule, decision })))
            }
            Ok(decision) => self.denied(take, decision, head),
            Err(error) => {
                let rule = Arc::clone(take.rule());
                self.failed(Failed::store(rule, head.clone(), error), head)
            }
        }
    }

    fn denied(self: &Arc<Self>, take: Take, decision: Decision, head: Parts) -> Settled {
        let rule = Arc::clone(take.rule());
        let cost = take.units();
        let Some(callback) = self.degrade.clone() else {
            let mut response = quota_exceeded(&rule, &decision, cost);
            self.headers.write(&rule, decision, &mut response);
            return Settled::Now(Outcome::Answer(response));
        };
        let headers = self.headers;
        Settled::Later(Box::pin(async move {
            let denied = Denied {
                rule: Arc::clone(&rule),
                key: take.into_key(),
                cost,
                decision: decision.clone(),
                head,
            };
            let response = guarded("degrade callback", rule.path(), || callback.degrade(denied));
            let mut response = response.await.unwrap_or_else(Into::into);
            headers.write(&rule, decision, &mut response);
            Outcome::Answer(response)
        }))
    }

    fn failed(self: &Arc<Self>, failed: Failed, head: Parts) -> Settled {
        let rule = Arc::clone(&failed.rule);
        let Some(callback) = self.on_error.clone() else {
            return Settled::Now(without_decision(&rule, head));
        };
        Settled::Later(Box::pin(async move {
            match recover(&*callback, failed).await {
                Recovery::Proceed => Outcome::Proceed(head, None),
                Recovery::Respond(response) => Outcome::Answer(response),
                Recovery::Propagate => without_decision(&rule, head),
            }
        }))
    }

    fn tell_transition(&self, rule: &Rule, answer: &Result<Decision, StoreError>) {
        let failing = answer.is_err();
        // The common case only reads, so that requests do not fight for the line.
        if self.failing.load(Ordering::Relaxed) == failing
            || self.failing.swap(failing, Ordering::Relaxed) == failing
        {
            return;
        }
        let path = rule.path();
        match answer {
            Ok(_) => trace::warning!(path, "decisions are made again"),
            Err(error) => {
                let error = error.to_string();
                trace::warning!(path, error, "no decisions: the error callbacks answer");
            }
        }
    }
}

/// Runs an error callback; a panic of it is a 500.
pub(super) async fn recover(callback: &dyn ErrorCallback, failed: Failed) -> Recovery {
    let rule = Arc::clone(&failed.rule);
    let recovery = guarded("error callback", rule.path(), || callback.recover(failed));
    let recovery = recovery.await;
    recovery.unwrap_or_else(|panicked| Recovery::Respond(panicked.into()))
}

/// No callback has answered, so the rule does.
fn without_decision(rule: &Rule, head: Parts) -> Outcome {
    match rule.error_policy() {
        OnError::Proceed => Outcome::Proceed(head, None),
        OnError::Respond => Outcome::Answer(reduced_capacity()),
    }
}

/// Why there is nothing to ask the store.
enum Unasked {
    Key(crate::error::KeyError),
    Panicked(Response),
}

impl Unasked {
    fn panicked(panicked: impl Into<Response>) -> Self {
        Self::Panicked(panicked.into())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("rule", &self.rule)
            .field("store", &self.store)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
