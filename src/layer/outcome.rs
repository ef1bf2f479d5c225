use http::header::HeaderName;
use http::{StatusCode, response};

use super::action::Admission;
use super::gate::Gate;
use crate::callback::caught;
use crate::charge::{Effect, LayerResponse};
use crate::rule::{Outcomes, Rule};
use crate::warning::{Warning, WarningKind};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

// What a layer gives back by the responses to its requests.
impl Gate {
    /// Whether the response to a request under this rule, or the answer to a call, matters.
    pub(super) fn reads_response(&self, rule: &Rule) -> bool {
        self.refunds_by_response(rule) || rule.counts_failures() || rule.is_outgoing()
    }

    /// Whether it may give back what the request was charged.
    pub(super) fn refunds_by_response(&self, rule: &Rule) -> bool {
        self.options.refund_if.is_some() || rule.outcomes().is_some()
    }

    /// What is to be done with what a request with this response was charged.
    pub(super) fn effects(
        &self,
        admitted: &Admission,
        response: &response::Parts,
    ) -> [Option<Effect>; 2] {
        let gives_back = self.wants_refund(admitted, response);
        // If a layer has answered, the handler was not called.
        let is_handlers = response.extensions.get::<LayerResponse>().is_none();
        let is_among =
            |it: &Outcomes| is_handlers && self.is_status_among(admitted, response, it, "lockout");
        [
            gives_back.then_some(Effect::Refund),
            ended(&admitted.rule, is_among),
        ]
    }

    /// Whether what a request with this response was charged is to be given back.
    fn wants_refund(&self, admitted: &Admission, response: &response::Parts) -> bool {
        let rule = &admitted.rule;
        self.is_among(admitted, response)
            || self.options.refund_if.as_ref().is_some_and(|condition| {
                caught("refund condition", rule.path(), || condition(response)).unwrap_or(false)
            })
    }

    /// Whether the response is among the outcomes of the rule. What a layer of this crate has
    /// answered says nothing of the handler, which has not been called; but a denial of the same
    /// `Limits` gives back what the layers around it have charged.
    fn is_among(&self, admitted: &Admission, response: &response::Parts) -> bool {
        let Some(outcomes) = admitted.rule.outcomes() else {
            return false;
        };
        if let Some(LayerResponse(denial)) = response.extensions.get() {
            let denial = denial.as_ref();
            return denial.is_some_and(|it| it.refunds.is(&self.refunds));
        }
        self.is_status_among(admitted, response, outcomes, "refund-on")
    }

    /// Whether the status of the response is among these outcomes of this setting.
    fn is_status_among(
        &self,
        admitted: &Admission,
        response: &response::Parts,
        outcomes: &Outcomes,
        setting: &'static str,
    ) -> bool {
        if !admitted.is_grpc {
            return outcomes.contain_http(response.status);
        }
        match response.headers.get(GRPC_STATUS) {
            Some(status) => outcomes.contain_grpc(status.as_bytes()),
            None => {
                if response.status == StatusCode::OK && outcomes.have_status() {
                    self.log.trailers.get_or_init(|| {
                        let warning = Warning::named(WarningKind::GrpcStatusInTrailers, setting);
                        self.warnings.add(warning.about(admitted.rule.path()));
                    });
                }
                false
            }
        }
    }
}

/// Whether the rule says by this outcome that a request has failed, or succeeded.
fn ended(rule: &Rule, is_among: impl Fn(&Outcomes) -> bool) -> Option<Effect> {
    match rule.lockout_outcomes().map(|it| it.is_some_and(&is_among)) {
        [true, _] => Some(Effect::Failed),
        [_, true] => Some(Effect::Succeeded),
        _ => None,
    }
}

impl Admission {
    /// Does what its rule says with what a request or a call was charged whose service or function
    /// has failed.
    pub(super) fn service_failed(&self) {
        if self.rule.outcomes().is_some_and(Outcomes::contain_error) {
            self.apply(Effect::Refund);
        }
        if let Some(effect) = ended(&self.rule, Outcomes::contain_error) {
            self.apply(effect);
        }
    }

    /// Does this with what the request was charged.
    pub(super) fn apply(&self, effect: Effect) {
        if let Some(charge) = &self.answer {
            effect.apply(charge);
        }
        if let Some(charge) = &self.shadow {
            charge.apply(effect);
        }
    }
}
