use std::sync::{Arc, OnceLock};

use http::header::HeaderName;
use http::{StatusCode, response};

use super::action::Admission;
use super::inspector::Warnings;
use crate::callback::caught;
use crate::rule::{Outcomes, Rule};
use crate::store::{LayerResponse, RefundQueue};
use crate::warning::{Warning, WarningKind};

/// What a layer gives back by the outcomes of its requests.
#[derive(Clone, Default)]
pub(crate) struct OutcomeRefunds {
    /// Beside what the rule says.
    pub(super) condition: Option<Arc<RefundIf>>,
    pub(super) queue: RefundQueue,
    pub(super) warnings: Arc<Warnings>,
    /// Whether it was said that a status in trailers comes too late.
    are_trailers_told: Arc<OnceLock<()>>,
}

/// Whether the charge of a request with this response is given back.
pub(super) type RefundIf = dyn Fn(&response::Parts) -> bool + Send + Sync;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

impl OutcomeRefunds {
    /// Whether the outcome of a request under this rule matters.
    pub(super) fn apply_to(&self, rule: &Rule) -> bool {
        self.condition.is_some() || rule.outcomes().is_some()
    }

    /// Gives back what a request with this response was charged, if the outcome says so.
    pub(super) fn settle(&self, admitted: &Admission, response: &response::Parts) {
        if !self.want_refund(admitted, response) {
            return;
        }
        if let Some(charge) = &admitted.answer {
            self.queue.give_back(charge, 0);
        }
        if let Some(charge) = &admitted.shadow {
            charge.give_back(0);
        }
    }

    fn want_refund(&self, admitted: &Admission, response: &response::Parts) -> bool {
        let rule = &admitted.rule;
        let outcomes = rule.outcomes();
        outcomes.is_some_and(|outcomes| self.is_among(outcomes, admitted, response))
            || self.condition.as_ref().is_some_and(|condition| {
                caught("refund condition", rule.path(), || condition(response)).unwrap_or(false)
            })
    }

    /// Whether the response is among the outcomes of the rule. What a layer of this crate has
    /// answered says nothing of the handler, which has not been called.
    fn is_among(
        &self,
        outcomes: &Outcomes,
        admitted: &Admission,
        response: &response::Parts,
    ) -> bool {
        if response.extensions.get::<LayerResponse>().is_some() {
            return false;
        }
        if !admitted.is_grpc {
            return outcomes.contain_http(response.status);
        }
        match response.headers.get(GRPC_STATUS) {
            Some(status) => outcomes.contain_grpc(status.as_bytes()),
            None => {
                if response.status == StatusCode::OK {
                    self.warn_of_trailers(&admitted.rule);
                }
                false
            }
        }
    }

    fn warn_of_trailers(&self, rule: &Rule) {
        self.are_trailers_told.get_or_init(|| {
            let warning = Warning::named(WarningKind::GrpcStatusInTrailers, "refund-on");
            self.warnings.add(warning.about(rule.path()));
        });
    }
}
