//! What a request has left by a rule, for a handler that shows it. Nothing is charged or counted.

use std::sync::Arc;

use axum_core::response::Response;
use http::request::Parts;

use super::action::{Action, LayerAnswer};
use super::decide::{Outcome, check_joint};
use super::gate::Gate;
use crate::callback::{Cause, grpc, reduced_capacity};
use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::error::StoreError;
use crate::fleet::Limited;
use crate::rule::Rule;
use crate::store::{Store, StoreFuture, Take};

/// A rule that is shown to the client of a request.
pub(crate) struct Look {
    pub(crate) gate: Arc<Gate>,
    /// With the quotas that the request has chosen.
    pub(crate) rule: Arc<Rule>,
    /// The request, also where an operator lets it through. Missing if the client is exempt.
    request: Option<Take>,
    /// What is asked. Missing if the rule does not limit the client, who is exempt or let through.
    pub(crate) take: Option<Take>,
    /// The denial that stands in place of the store's answer while an operator blocks the client.
    pub(crate) blocked: Option<Box<Decision>>,
}

impl Look {
    /// What the store says is left, by this look's take.
    pub(crate) fn peek(&self, take: &Take) -> StoreFuture<Decision> {
        let store = self.gate.store();
        match check_joint(store, take) {
            Ok(()) => store.peek(take),
            Err(error) => StoreFuture::ready(Err(error)),
        }
    }

    /// What is left for a client that the rule does not limit: all.
    pub(crate) fn untouched(&self) -> Decision {
        let algorithm = self.rule.algorithm().algorithm();
        let quotas = self.rule.quotas().iter();
        let states = quotas.map(|quota| QuotaState::from_micros(algorithm.limit(quota), 0));
        Decision::of_states(Verdict::Allowed, Source::Local, states.collect())
    }

    /// This decision with what clients are told of: the quotas under which the request counts, also
    /// those of subjects that an operator lets through.
    pub(crate) fn told(&self, mut decision: Decision) -> Decision {
        if let Some(request) = &self.request {
            decision.set_hidden(|quota| !request.is_told(quota));
        }
        decision
    }

    /// What a layer answers where the store gives no decision.
    pub(crate) async fn answer_without(&self, error: StoreError, head: Parts) -> Response {
        let (rule, cause) = (Arc::clone(&self.rule), Cause::Store(error, None));
        let action = self.gate.act(Outcome::Failed(rule, cause));
        self.gate.answer_instead(action, head).await
    }
}

impl Gate {
    /// Whether each request shows its keys under this rule, without what only a layer knows.
    pub(crate) fn knows_keys(&self, rule: &Rule) -> bool {
        let is_known = |it| self.options.extractor_of(rule, it).is_some();
        match rule.counted_subjects() {
            [] => self.options.extractor(rule).is_some(),
            subjects => subjects.iter().all(is_known),
        }
    }

    /// What to show to the client of a request with this head. `None` if no rule denies its
    /// requests, or if nothing but a layer knows whom the rule counts.
    pub(crate) fn look(self: &Arc<Self>, head: &mut Parts) -> Result<Option<Look>, Box<Action>> {
        let is_shown = |rule: &Arc<Rule>| !rule.is_shadow() && self.knows_keys(rule);
        let Some(rule) = self.rule().filter(is_shown) else {
            return Ok(None);
        };
        let request = match self.read_head(Arc::clone(&rule), head) {
            Ok(request) => Some(request),
            Err(action) if matches!(*action, Action::Pass) => None,
            Err(action) => return Err(action),
        };
        let rule = match &request {
            Some(request) => Arc::clone(request.rule()),
            None => self.choose_plan(rule, head)?,
        };
        let limited = request.as_ref().map(|it| self.operator_keys.limited(it));
        let (rule, take, blocked) = match limited {
            None => (rule, None, None),
            Some(Limited::Whole) => (rule, request.clone(), None),
            Some(Limited::Blocked(denial)) => (rule, request.clone(), Some(denial)),
            Some(Limited::Part(part)) => (Arc::clone(part.rule()), Some(*part), None),
            Some(Limited::LetThrough) => (rule, None, None),
        };
        Ok(Some(Look {
            gate: Arc::clone(self),
            rule,
            request,
            take,
            blocked,
        }))
    }

    /// What a layer answers in place of the handler. Where it would call that, there is nothing to
    /// show: the answer is a 503.
    pub(crate) async fn answer_instead(self: &Arc<Self>, action: Action, head: Parts) -> Response {
        let grpc = grpc::content_type(&head.method, &head.headers).cloned();
        let action = match action {
            Action::Recover(callback, outcome) => {
                Arc::clone(self).recover(callback, *outcome, head).await
            }
            action => action,
        };
        match action {
            Action::Answer(LayerAnswer::Response(response)) => response,
            Action::Answer(LayerAnswer::Refusal(refusal)) => self.answer(refusal, grpc.as_ref()),
            _ => reduced_capacity(grpc.as_ref()),
        }
    }
}
