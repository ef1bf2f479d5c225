use std::sync::Arc;

use axum_core::response::Response;
use http::request::Parts;

use super::settings::Settings;
use crate::callback::{
    BoxFuture, Denied, Failed, Panicked, Recovery, caught, guarded, quota_exceeded, recover,
    reduced_capacity,
};
use crate::decision::{Decision, Decisions};
use crate::error::{KeyError, StoreError};
use crate::key::Key;
use crate::rule::{OnError, Rule};
use crate::store::{StoreFuture, Take};

/// What becomes of a request.
pub(super) enum Outcome {
    /// On to the handler; the mark is missing where there is no decision.
    Proceed(Parts, Option<Mark>),
    Answer(Response),
    /// A callback answers: the handler is out of the game.
    Answering(BoxFuture<'static, Response>),
    /// The store is asked, or an error callback that may still let it go on.
    Undecided(BoxFuture<'static, Outcome>),
}

/// What an allowed request's response has to show.
pub(super) struct Mark {
    pub(super) rule: Arc<Rule>,
    pub(super) decision: Decision,
}

/// Why a request does not go straight on to the handler.
pub(super) enum Halt {
    /// The store has to be waited for.
    Asking(Take, StoreFuture<Decisions>),
    Denied(Take, Decision),
    /// A fallback has decided, and an error callback wants to know why.
    FellBack(Take, Decision),
    NoDecision(Take, StoreError),
    NoKey(Arc<Rule>, KeyError),
    /// An error callback has said what becomes of it.
    Overruled(Box<Recovery>),
    Panicked(Panicked),
}

impl Halt {
    /// The rule of a request that may still reach the handler.
    pub(super) fn rule(&self) -> Option<&Arc<Rule>> {
        match self {
            Self::Asking(take, _)
            | Self::NoDecision(take, _)
            | Self::Denied(take, _)
            | Self::FellBack(take, _) => Some(take.rule()),
            Self::NoKey(rule, _) => Some(rule),
            Self::Overruled(_) | Self::Panicked(_) => None,
        }
    }
}

impl Settings {
    /// Whether a request has to be taken apart for code of the user's to look at it.
    pub(super) fn reads_heads(&self, rule: &Rule) -> bool {
        self.key.is_some()
            || self.cost.is_some()
            || self.exempt.is_some()
            || self.on_error.is_some()
            || rule.extractor().is_some()
    }

    /// Straight from a request's head to the handler, where the store answers at once and allows it;
    /// without a mark where the request is exempt.
    pub(super) fn decide(&self, rule: Arc<Rule>, head: &Parts) -> Result<Option<Mark>, Halt> {
        match self.is_exempt(&rule, head)? {
            true => Ok(None),
            false => self.answer(self.question(rule, head)?).map(Some),
        }
    }

    /// The store's answer, if it is there at once and nobody waits for theirs.
    pub(super) fn answer(&self, take: Take) -> Result<Mark, Halt> {
        if self.waiting.is_anybody() {
            let pending = self.store.take(std::slice::from_ref(&take));
            return Err(Halt::Asking(take, pending));
        }
        match self.store.take(std::slice::from_ref(&take)).now() {
            Ok(answer) => self.judge(take, answer.and_then(crate::store::single)),
            Err(pending) => Err(Halt::Asking(take, pending)),
        }
    }

    fn is_exempt(&self, rule: &Rule, head: &Parts) -> Result<bool, Halt> {
        match &self.exempt {
            Some(exempt) => Ok(caught("exemption", rule.path(), || exempt(head))?),
            None => Ok(false),
        }
    }

    /// Runs the user's code that makes a take of a request.
    fn question(&self, rule: Arc<Rule>, head: &Parts) -> Result<Take, Halt> {
        let path = rule.path();
        let key = match self.key.as_deref().or(rule.extractor()) {
            None => Ok(Key::default()),
            Some(extractor) => caught("key extractor", path, || extractor.extract(head))?,
        };
        let cost = match &self.cost {
            None => rule.request_cost(),
            Some(cost) => caught("cost", path, || cost(head))?,
        };
        match key {
            Ok(key) => Ok(Take::new(rule, key).cost(cost)),
            Err(error) => {
                self.tell_of_failure(path, &error);
                Err(Halt::NoKey(rule, error))
            }
        }
    }

    pub(super) fn judge(
        &self,
        take: Take,
        answer: Result<Decision, StoreError>,
    ) -> Result<Mark, Halt> {
        match answer {
            Ok(decision) => {
                self.tell_of_success(take.rule().path());
                if self.on_error.is_some() && decision.failure().is_some() {
                    return Err(Halt::FellBack(take, decision));
                }
                stands(take, decision)
            }
            Err(error) => {
                self.tell_of_failure(take.rule().path(), &error);
                Err(Halt::NoDecision(take, error))
            }
        }
    }

    /// Finds out what becomes of a request that does not go straight on.
    pub(super) fn settle(self: &Arc<Self>, halt: Halt, head: Parts) -> Outcome {
        match halt {
            Halt::Asking(take, _) if self.waiting.is_anybody() => {
                Outcome::Undecided(Box::pin(Arc::clone(self).wait(take, None, head)))
            }
            Halt::Asking(take, pending) => {
                Outcome::Undecided(Box::pin(Arc::clone(self).ask(take, pending, head)))
            }
            Halt::Denied(take, decision) if self.may_wait(&decision) => {
                let wait = Arc::clone(self).wait(take, Some(decision), head);
                Outcome::Undecided(Box::pin(wait))
            }
            Halt::Denied(take, decision) => self.denied(take, decision, head),
            Halt::FellBack(take, decision) => {
                Outcome::Undecided(Box::pin(Arc::clone(self).fell_back(take, decision, head)))
            }
            Halt::NoDecision(take, error) => {
                self.tell_of_no_fallback(take.rule());
                self.failed(Failed::store(take.into_rule(), head.clone(), error), head)
            }
            Halt::NoKey(rule, error) => self.failed(Failed::key(rule, head.clone(), error), head),
            Halt::Overruled(instead) => match *instead {
                Recovery::Respond(response) => Outcome::Answer(response),
                Recovery::Proceed | Recovery::Propagate => Outcome::Proceed(head, None),
            },
            Halt::Panicked(panicked) => Outcome::Answer(panicked.into()),
        }
    }

    async fn ask(
        self: Arc<Self>,
        take: Take,
        pending: StoreFuture<Decisions>,
        head: Parts,
    ) -> Outcome {
        let answer = pending.await.and_then(crate::store::single);
        match self.judge(take, answer) {
            Ok(mark) => Outcome::Proceed(head, Some(mark)),
            Err(halt) => self.settle(halt, head),
        }
    }

    async fn fell_back(self: Arc<Self>, take: Take, decision: Decision, head: Parts) -> Outcome {
        let halt = Halt::FellBack(take, decision);
        match self.told_why(Err(halt), &head).await {
            Ok(mark) => Outcome::Proceed(head, Some(mark)),
            Err(halt) => self.settle(halt, head),
        }
    }

    /// What a fallback has decided stands, unless the error callback says something else.
    pub(super) async fn told_why(
        &self,
        judged: Result<Mark, Halt>,
        head: &Parts,
    ) -> Result<Mark, Halt> {
        let (take, decision) = match judged {
            Err(Halt::FellBack(take, decision)) => (take, decision),
            judged => return judged,
        };
        let (Some(callback), Some(failure)) = (&self.on_error, decision.failure()) else {
            return stands(take, decision);
        };
        let failed = Failed::store(Arc::clone(take.rule()), head.clone(), failure.clone());
        let failed = failed.with_fallback(decision.clone());
        match recover(&**callback, failed).await {
            Recovery::Propagate => stands(take, decision),
            instead => Err(Halt::Overruled(Box::new(instead))),
        }
    }

    pub(super) fn denied(&self, take: Take, decision: Decision, head: Parts) -> Outcome {
        let headers = self.headers;
        let Some(callback) = self.degrade.clone() else {
            let rule = take.rule();
            let mut response = quota_exceeded(rule, &decision, take.units());
            headers.write(rule, decision, &mut response);
            return Outcome::Answer(response);
        };
        Outcome::Answering(Box::pin(async move {
            let rule = Arc::clone(take.rule());
            let denied = Denied::new(take, decision.clone(), head);
            let response = guarded("degrade callback", rule.path(), || callback.degrade(denied));
            let mut response = response.await.unwrap_or_else(Into::into);
            headers.write(&rule, decision, &mut response);
            response
        }))
    }

    fn failed(&self, failed: Failed, head: Parts) -> Outcome {
        let rule = Arc::clone(&failed.rule);
        let Some(callback) = self.on_error.clone() else {
            return without_decision(&rule, head);
        };
        Outcome::Undecided(Box::pin(async move {
            match recover(&*callback, failed).await {
                Recovery::Proceed => Outcome::Proceed(head, None),
                Recovery::Respond(response) => Outcome::Answer(response),
                Recovery::Propagate => without_decision(&rule, head),
            }
        }))
    }
}

/// Who decided is of no interest any more.
pub(super) fn stands(take: Take, decision: Decision) -> Result<Mark, Halt> {
    match decision.is_allowed() {
        true => Ok(Mark {
            rule: take.into_rule(),
            decision,
        }),
        false => Err(Halt::Denied(take, decision)),
    }
}

/// No callback has answered, so the rule does.
fn without_decision(rule: &Rule, head: Parts) -> Outcome {
    match rule.error_policy() {
        Some(OnError::Proceed) => Outcome::Proceed(head, None),
        // The fallback would have decided if there were one, and if it could.
        None | Some(OnError::Respond | OnError::Fallback) => Outcome::Answer(reduced_capacity()),
    }
}

impl From<Panicked> for Halt {
    fn from(panicked: Panicked) -> Self {
        Self::Panicked(panicked)
    }
}
