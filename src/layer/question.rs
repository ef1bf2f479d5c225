//! What the layer asks about a request, and what the answer means.

use std::slice;
use std::sync::Arc;

use http::request::Parts;
use tokio::time::sleep_until;

use super::settings::Settings;
use crate::admission::{AnswerHandler, AskedTake, Outcome, Question, Waiter};
use crate::callback::{Cause, caught};
use crate::decision::{Decision, Decisions};
use crate::error::StoreError;
use crate::rule::{OnError, Rule};
use crate::store::{Charge, Take, single};

impl Settings {
    /// Whether some code needs the request's head before the store is asked.
    pub(super) fn reads_heads(&self, rule: &Rule) -> bool {
        self.options.extractor(rule).is_some() || self.cost.is_some() || self.exempt.is_some()
    }

    /// Asks about the request with this head. `None` if it is exempt.
    pub(super) fn ask_about(self: &Arc<Self>, rule: Arc<Rule>, head: &Parts) -> Option<Outcome> {
        if let Some(exempt) = &self.exempt {
            match caught("exemption", rule.path(), || exempt(head)) {
                Ok(false) => {}
                Ok(true) => return None,
                Err(panicked) => return Some(Outcome::Respond(panicked.into())),
            }
        }
        Some(match self.take_for(rule, head) {
            Ok(take) => self.ask(take, None),
            Err(outcome) => *outcome,
        })
    }

    fn take_for(&self, rule: Arc<Rule>, head: &Parts) -> Result<Take, Box<Outcome>> {
        let key = self.options.extract(&rule, head)?;
        let cost = match &self.cost {
            None => Ok(rule.cost()),
            Some(cost) => caught("cost", rule.path(), || cost(head)),
        };
        match cost {
            Ok(cost) => Ok(Take::new(rule, key).with_cost(cost)),
            Err(panicked) => Err(Box::new(Outcome::Respond(panicked.into()))),
        }
    }

    /// Asks the store, once.
    pub(super) fn ask(self: &Arc<Self>, take: Take, waiter: Option<Waiter>) -> Outcome {
        let at = self.waiting.now();
        let answer = self.store().take(slice::from_ref(&take)).now();
        let asked = AskedTake { take, at, waiter };
        match answer {
            Ok(answer) => self.outcome(asked, answer),
            Err(answer) => {
                let handler = Arc::clone(self) as _;
                Outcome::Ask(Question {
                    handler,
                    asked,
                    answer,
                })
            }
        }
    }

    /// What the store's answer means for the request.
    fn outcome(
        self: &Arc<Self>,
        asked: AskedTake,
        answer: Result<Decisions, StoreError>,
    ) -> Outcome {
        let answer = answer.and_then(single);
        self.log_answer(asked.take.rule().path(), &answer);
        match answer {
            Ok(decision) => self.decided(asked, decision),
            Err(error) => {
                let rule = asked.take.into_rule();
                let otherwise = self.without_decision(&rule);
                self.options
                    .fail(rule, Cause::Store(error, None), otherwise)
            }
        }
    }

    /// Acts on a decision, and tells the error callback if a fallback made it.
    fn decided(self: &Arc<Self>, asked: AskedTake, decision: Decision) -> Outcome {
        let Some(failure) = decision.failure().cloned() else {
            return self.allowed_or_denied(asked, decision);
        };
        // A fallback decided. The error callback is told of the first failure of a request only.
        let waiter = asked.waiter.as_ref();
        let is_reported = waiter.is_some_and(|waiter| waiter.is_failure_reported);
        let rule = Arc::clone(asked.take.rule());
        let cause = Cause::Store(failure, Some(decision.clone()));
        let outcome = self.allowed_or_denied(asked, decision);
        match is_reported {
            true => outcome,
            false => self.options.fail(rule, cause, outcome),
        }
    }

    /// Admits the request with its charge, lets it wait, or denies it.
    fn allowed_or_denied(self: &Arc<Self>, mut asked: AskedTake, decision: Decision) -> Outcome {
        if decision.is_allowed() {
            let mut admitted = self.options.admit(Arc::clone(asked.take.rule()));
            admitted.charge = decision.receipt().map(|receipt| {
                let store = Arc::clone(self.store());
                Charge::new(store, asked.take, receipt)
            });
            admitted.decision = Some(decision);
            return Outcome::Admit(admitted);
        }
        let AskedTake { take, at, waiter } = &mut asked;
        let Some(wake) = self.waiting.wake_at(*at, take, waiter, &decision) else {
            return self.options.deny(asked.take, decision);
        };
        let settings = Arc::clone(self);
        Outcome::Wait(Box::pin(async move {
            sleep_until(wake).await;
            let waiter = asked.waiter.map(|waiter| waiter.reported(&decision));
            settings.ask(asked.take.repeat(), waiter)
        }))
    }

    /// What the rule says about requests without a decision. A fallback would have decided if there
    /// were one, and if it could.
    fn without_decision(&self, rule: &Arc<Rule>) -> Outcome {
        self.log_missing_fallback(rule);
        match rule.on_error() {
            Some(OnError::Proceed) => Outcome::Admit(self.options.admit(Arc::clone(rule))),
            None | Some(OnError::Respond | OnError::Fallback) => Outcome::unavailable(),
        }
    }
}

impl AnswerHandler for Settings {
    fn answered(
        self: Arc<Self>,
        asked: AskedTake,
        answer: Result<Decisions, StoreError>,
    ) -> Outcome {
        self.outcome(asked, answer)
    }
}
