//! What a request has left by a rule. Nothing is charged or counted.

use std::sync::Arc;

use axum_core::response::Response;
use http::request::Parts;

use super::action::Action;
use super::decisions::{Decided, ask};
use super::gate::Gate;
use super::headers::{reset, shown};
use crate::callback::{AnswerReason, push_json};
use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::fleet::OperatorVerdict;
use crate::rule::{Policy, Rule};
use crate::store::StoreFuture;
use crate::take::Take;

/// What a request has left by a rule: see [`Limits::usage`](crate::Limits::usage).
///
/// ```
/// use tidegate::layer::RuleUsage;
///
/// fn shown(usage: &RuleUsage) -> Vec<String> {
///     let left = usage.policies().map(|(policy, state)| {
///         format!("{}: {} of {}", policy.name(), state.remaining(), state.max())
///     });
///     left.collect()
/// }
/// # let _ = shown;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RuleUsage {
    /// The rule with the quotas of the request: those of its plan, multiplied while an operator
    /// raises its key.
    pub rule: Arc<Rule>,
    /// Returns what is left, also for a client that the rule does not limit.
    pub decision: Decision,
    /// Whether the rule limits the client: it is neither exempt nor let through by an operator.
    pub is_limited: bool,
}

impl RuleUsage {
    /// The quotas that clients are told of, with what is left of each: neither hidden ones nor
    /// those of subjects that the request does not have.
    pub fn policies(&self) -> impl Iterator<Item = (&Policy, &QuotaState)> {
        shown(&self.rule, &self.decision)
    }

    /// Whether a fallback has answered, which knows what is left of its share in this process.
    fn is_of_fallback(&self) -> bool {
        self.decision.source() == Source::Fallback
    }

    pub(crate) fn to_json(&self) -> String {
        let mut json = "{\"path\":\"".to_owned();
        push_json(&mut json, self.rule.path());
        if let Some(plan) = self.rule.plan() {
            json.push_str("\",\"plan\":\"");
            push_json(&mut json, plan);
        }
        json.push('"');
        if let Some(factor) = self.rule.factor() {
            json += &format!(",\"raised\":{factor}");
        }
        if self.is_of_fallback() {
            json += ",\"fallback\":true";
        }
        let policies: Vec<_> = self.policies().map(|it| self.policy_json(it)).collect();
        json + &format!(",\"policies\":[{}]}}", policies.join(","))
    }

    fn policy_json(&self, (policy, state): (&Policy, &QuotaState)) -> String {
        // The name of a policy has no quotes, backslashes or control characters.
        let (name, limit) = (policy.name(), policy.quota().max());
        let known = |number: u64| match self.is_of_fallback() {
            true => "null".to_owned(),
            false => number.to_string(),
        };
        let left = known(state.remaining());
        let mut json = format!("{{\"name\":\"{name}\",\"limit\":{limit},\"remaining\":{left}");
        if let Some(subject) = policy.subject() {
            json.push_str(",\"subject\":\"");
            push_json(&mut json, subject);
            json.push('"');
        }
        if !policy.is_concurrent() {
            let (reset, window) = (known(reset(state, &self.decision)), policy.window());
            json += &format!(",\"reset\":{reset},\"window\":{}", window.as_secs_f64());
        }
        if let Some(period) = policy.period() {
            let zone = period.zone().unwrap_or("UTC");
            json += &format!(",\"per\":\"{}\",\"zone\":\"{zone}\"", period.name());
            let from = period.beginning_json();
            json += &from.map_or_else(String::new, |from| format!(",\"from\":{from}"));
        }
        json + "}"
    }
}

/// A question about what is left by a rule.
pub(crate) struct Look {
    gate: Arc<Gate>,
    rule: Arc<Rule>,
    /// Missing if the client is exempt.
    request: Option<Take>,
    /// Missing if the rule does not limit the client.
    answer: Option<StoreFuture<Decision>>,
}

impl Look {
    /// Returns what is left. An error says what a layer does where the store gives no decision.
    pub(crate) async fn left(self) -> Result<RuleUsage, (Arc<Gate>, Action)> {
        let is_limited = self.answer.is_some();
        let answer = match self.answer {
            Some(answer) => answer.await,
            None => Ok(untouched(&self.rule)),
        };
        let mut decision = answer.map_err(|error| {
            let undecided = Decided::unanswered(Arc::clone(&self.rule), error);
            (Arc::clone(&self.gate), self.gate.act(undecided))
        })?;
        // Clients are told of the quotas under which the request counts, also of those of subjects
        // that an operator lets through.
        if let Some(request) = &self.request {
            decision.set_hidden(|quota| !request.is_shown_to_clients(quota));
        }
        Ok(RuleUsage {
            rule: self.rule,
            decision,
            is_limited,
        })
    }
}

/// A client that the rule does not limit has all of it left.
fn untouched(rule: &Rule) -> Decision {
    let algorithm = rule.algorithm().algorithm();
    let quotas = rule.quotas().iter();
    let states = quotas.map(|quota| QuotaState::from_micros(algorithm.limit(quota), 0));
    Decision::of_states(Verdict::Allowed, Source::Local, states.collect())
}

impl Gate {
    /// Whether each request shows its keys under this rule, without what only a layer knows.
    pub(crate) fn knows_keys(&self, rule: &Rule) -> bool {
        let is_known = |it| self.options.extractor_of(rule, it).is_some();
        match rule.subjects() {
            [] => self.options.extractor(rule).is_some(),
            subjects => subjects.iter().all(is_known),
        }
    }

    /// Asks what the client of a request with this head has left. `None` if no rule denies its
    /// requests, or if nothing but a layer knows whom the rule counts.
    pub(crate) fn look(self: &Arc<Self>, head: &mut Parts) -> Result<Option<Look>, Box<Action>> {
        let is_shown = |rule: &Arc<Rule>| !rule.is_shadow() && self.knows_keys(rule);
        let Some(rule) = self.decider.rule().filter(is_shown) else {
            return Ok(None);
        };
        let (rule, request) = match self.read_head(self.options.reads(&rule), head) {
            Ok(request) => (Arc::clone(request.rule()), Some(request)),
            Err(action) if matches!(*action, Action::Pass) => (self.choose_plan(rule, head)?, None),
            Err(action) => return Err(action),
        };
        let verdict = |it| (it, self.decider.operator_keys.verdict(it));
        let (rule, answer) = match request.as_ref().map(verdict) {
            None | Some((_, OperatorVerdict::LetThrough)) => (rule, None),
            Some((request, OperatorVerdict::Nothing)) => (rule, Some(self.peek(request))),
            Some((_, OperatorVerdict::Blocked(denial))) => {
                (rule, Some(StoreFuture::ready(Ok(*denial))))
            }
            Some((_, OperatorVerdict::Replace(take))) => {
                (Arc::clone(take.rule()), Some(self.peek(&take)))
            }
        };
        Ok(Some(Look {
            gate: Arc::clone(self),
            rule,
            request,
            answer,
        }))
    }

    fn peek(&self, take: &Take) -> StoreFuture<Decision> {
        ask(self.decider.store(), &take.clone().looking()).map(Decision::shown)
    }

    /// What a layer answers to a request that shows nothing. Where it would call the handler, the
    /// answer is a 503.
    pub(crate) async fn answer_instead(self: &Arc<Self>, action: Action, head: Parts) -> Response {
        let form = self.form_of(&head, None);
        let action = match action {
            Action::Recover(callback, decided) => {
                Arc::clone(self)
                    .recover(callback, decided, head, None)
                    .await
            }
            action => action,
        };
        match action {
            Action::Respond(response) => response,
            Action::Refuse(refusal) => self.answer(refusal, &form),
            _ => AnswerReason::NoDecision.answer(&form, None),
        }
    }
}
