//! What the layer asks about a request, and what the answer means.
//!
//! ```text
//! ask_about ── exempt ──▶ no outcome: the inner service is called as if there were no layer
//!     │
//! ask_first ── the rule is a shadow rule: its take is asked and counted, no outcome
//!     │        the rule has a candidate: its take is asked along with the request's
//!    ask ───── an answer that is there at once ──▶ outcome
//!     │        a pending one: `Outcome::Ask`, and `answered` ──▶ outcome
//!  outcome ─── no answer: the error callback, else what the rule says
//!     │
//!  decided ─── by a fallback: the error callback may answer instead
//!     │
//! allowed_or_denied ── admits with a charge, denies, or waits and asks again
//! ```
//!
//! A request is counted where its outcome is certain: once, however often it asks, and not by a
//! decision in whose place an error callback answers.

use std::sync::Arc;

use http::request::Parts;
use tokio::time::{Instant, sleep_until};

use super::settings::Settings;
use crate::admission::{AnswerHandler, AskedTake, Outcome, Question, ShadowTake, Waiter};
use crate::callback::{Cause, caught};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::rule::{OnError, Rule};
use crate::store::{Charge, Take};

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
                Err(_) if rule.is_shadow() => return None,
                Err(panicked) => return Some(Outcome::Respond(panicked.into())),
            }
        }
        let is_shadow = rule.is_shadow();
        match self.take_for(rule, head) {
            Ok(take) => self.ask_first(take),
            Err(_) if is_shadow => None,
            Err(outcome) => Some(*outcome),
        }
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

    /// Asks the store about a request that has just arrived. `None` if the rule is a shadow rule,
    /// whose answer does not matter for the request.
    #[inline]
    pub(super) fn ask_first(self: &Arc<Self>, take: Take) -> Option<Outcome> {
        if take.rule().is_shadow() {
            if let Some(shadow) = self.ask_shadow(take) {
                shadow.count();
            }
            return None;
        }
        let candidate = take.rule().shadow().map(Arc::clone);
        let candidate = candidate.map(|candidate| take.under(candidate));
        Some(self.ask(take, candidate, None))
    }

    fn ask_shadow(&self, take: Take) -> Option<ShadowTake> {
        let (counters, pending) = (&self.options.counters, &self.options.shadows);
        ShadowTake::ask(self.store(), take, counters, pending)
    }

    /// Asks the store, once: about the take, and about that of a shadow rule.
    fn ask(
        self: &Arc<Self>,
        take: Take,
        candidate: Option<Take>,
        waiter: Option<Waiter>,
    ) -> Outcome {
        let at = self.waiting.now();
        let span = self.span(&take);
        let answer = span.in_scope(|| self.store().take(&take));
        // Both stand in the queue before a flight departs, unless one departs in between.
        let shadow = candidate.and_then(|take| self.ask_shadow(take));
        let mut asked = AskedTake {
            take,
            at,
            waiter,
            shadow: shadow.map(Box::new),
            span,
        };
        match answer.now() {
            Ok(answer) => self.outcome(asked, answer),
            Err(answer) => {
                asked.at = Some(at.unwrap_or_else(Instant::now));
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
        mut asked: AskedTake,
        answer: Result<Decision, StoreError>,
    ) -> Outcome {
        if let Some(shadow) = asked.shadow.take() {
            shadow.count();
        }
        Self::record(&asked.span, &answer);
        self.log_answer(asked.take.rule().path(), &answer);
        match answer {
            Ok(decision) => self.decided(asked, decision),
            Err(error) => {
                self.options.counters.store_failed(error.kind());
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
            return self.allowed_or_denied(asked, decision, true);
        };
        self.options.counters.store_failed(failure.kind());
        // A fallback decided. The error callback is told of the first failure of a request only.
        let waiter = asked.waiter.as_ref();
        let is_reported = waiter.is_some_and(|waiter| waiter.is_failure_reported);
        let rule = Arc::clone(asked.take.rule());
        if is_reported {
            return self.allowed_or_denied(asked, decision, true);
        }
        let cause = Cause::Store(failure, Some(decision.clone()));
        let (settings, take) = (Arc::clone(self), asked.take.clone());
        let outcome = self.allowed_or_denied(asked, decision.clone(), false);
        let is_final = !matches!(outcome, Outcome::Wait(_));
        // The request is counted by this decision only if the callback leaves it to it.
        let propagated = move || {
            if is_final {
                settings.count(&take, &decision);
            }
        };
        self.options.fail_unless(rule, cause, propagated, outcome)
    }

    /// Counts and logs what became of a request.
    fn count(&self, take: &Take, decision: &Decision) {
        let counters = &self.options.counters;
        counters.decided(take.rule(), decision, take.cost());
        if !decision.is_allowed() {
            self.log_denial(take, decision);
        }
    }

    /// Admits the request with its charge, lets it wait, or denies it. `counts`: whether that is
    /// sure to happen.
    fn allowed_or_denied(
        self: &Arc<Self>,
        mut asked: AskedTake,
        decision: Decision,
        counts: bool,
    ) -> Outcome {
        let counters = &self.options.counters;
        if decision.is_allowed() {
            if counts {
                self.count(&asked.take, &decision);
            }
            let mut admitted = self.options.admit(Arc::clone(asked.take.rule()));
            admitted.charge = decision.receipt().map(|receipt| {
                let store = Arc::clone(self.store());
                Charge::of_layer(store, asked.take, receipt, Arc::clone(counters))
            });
            admitted.decision = Some(decision);
            return Outcome::Admit(admitted);
        }
        let AskedTake {
            take, at, waiter, ..
        } = &mut asked;
        let wake = self.waiting.wake_at(*at, take, waiter, &decision, counters);
        let Some(wake) = wake else {
            if counts {
                self.count(take, &decision);
            }
            return self.options.deny(asked.take, decision);
        };
        let settings = Arc::clone(self);
        Outcome::Wait(Box::pin(async move {
            sleep_until(wake).await;
            let waiter = asked.waiter.map(|waiter| waiter.reported(&decision));
            settings.ask(asked.take.repeat(), None, waiter)
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
        answer: Result<Decision, StoreError>,
    ) -> Outcome {
        if let Some(at) = asked.at {
            self.options.counters.answered_after(at.elapsed());
        }
        self.outcome(asked, answer)
    }
}
