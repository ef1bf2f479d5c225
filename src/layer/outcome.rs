use http::header::HeaderName;
use http::{StatusCode, response};

use super::action::Admission;
use super::gate::Gate;
use crate::callback::caught;
use crate::charge::{GiveBack, LayerResponse};
use crate::rule::{Outcomes, Rule};
use crate::warning::{Warning, WarningKind};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

// What a layer gives back by the responses to its requests.
impl Gate {
    /// Whether the response to a request under this rule matters.
    pub(super) fn refunds_by_response(&self, rule: &Rule) -> bool {
        self.options.refund_if.is_some() || rule.outcomes().is_some()
    }

    /// Whether what a request with this response was charged is to be given back.
    pub(super) fn wants_refund(&self, admitted: &Admission, response: &response::Parts) -> bool {
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
        if !admitted.is_grpc {
            return outcomes.contain_http(response.status);
        }
        match response.headers.get(GRPC_STATUS) {
            Some(status) => outcomes.contain_grpc(status.as_bytes()),
            None => {
                if response.status == StatusCode::OK && outcomes.have_status() {
                    self.log.trailers.get_or_init(|| {
                        let warning =
                            Warning::named(WarningKind::GrpcStatusInTrailers, "refund-on");
                        self.warnings.add(warning.about(admitted.rule.path()));
                    });
                }
                false
            }
        }
    }
}

impl Admission {
    /// Gives back what a request or a call was charged whose service or function has failed, if its
    /// rule says so.
    pub(super) fn refund_error(&self) {
        if self.rule.outcomes().is_some_and(Outcomes::contain_error) {
            self.give_back();
        }
    }

    pub(super) fn give_back(&self) {
        if let Some(charge) = &self.answer {
            self.gate.refunds.give_back(charge, GiveBack::Everything);
        }
        if let Some(charge) = &self.shadow {
            charge.give_back(GiveBack::Everything);
        }
    }
}
