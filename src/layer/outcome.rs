use std::sync::Arc;

use http::{StatusCode, response};
use http_body::Frame;

use super::action::Admission;
use super::gate::Gate;
use crate::callback::caught;
use crate::charge::{Charge, Effect, FrameWatcher, LatePermit, LayerResponse, Permit};
use crate::rule::{Outcomes, Rule, Statuses};
use crate::warning::{Warning, WarningKind};

// What a layer gives back by the responses to its requests.
impl Gate {
    /// Returns what this response does to the charge of its request. A response that a layer of
    /// this crate has made says nothing of the handler, which has not been called; but a denial of
    /// the same `Limits` gives back what the layers around it have charged.
    pub(super) fn effects(&self, rule: &Rule, response: &response::Parts) -> [Option<Effect>; 2] {
        let answer = Statuses::new(response.status, &response.headers);
        let layers = LayerResponse::of_layer(&response.extensions);
        let gives_back = rule.outcomes().is_some_and(|outcomes| match layers {
            None => outcomes.contain(answer),
            Some(layers) => {
                let denial = layers.denial.as_ref();
                denial.is_some_and(|it| it.refunds.is(&self.decider.refunds))
            }
        });
        let gives_back = gives_back
            || self.options.refund_if.as_ref().is_some_and(|condition| {
                caught("refund condition", rule.path(), || condition(response)).unwrap_or(false)
            });
        self.warn_of_trailers(rule, answer);
        let [on, reset_on] = rule.lockout_outcomes();
        let ended = match () {
            () if layers.is_some() => None,
            () if on.is_some_and(|it| it.contain_failure(answer)) => Some(Effect::Failed),
            () if reset_on.is_some_and(|it| it.contain(answer)) => Some(Effect::Succeeded),
            () => None,
        };
        [gives_back.then_some(Effect::Refund), ended]
    }

    /// Warns if the answer tells its status too late for a setting.
    fn warn_of_trailers(&self, rule: &Rule, answer: Statuses<'_>) {
        let [on, reset_on] = rule.lockout_outcomes();
        let on = on.filter(|it| !it.have_grpc() || answer.are_of("application/grpc-web"));
        let settings = [
            ("refund-on", rule.outcomes()),
            ("lockout", on),
            ("lockout", reset_on),
        ];
        let mut settings = settings.into_iter().filter(|_| answer.lack_grpc());
        let late = settings.find(|(_, it)| it.is_some_and(Outcomes::have_status));
        if let Some((setting, _)) = late {
            self.decider.log.trailers.get_or_init(|| {
                let warning = Warning::named(WarningKind::GrpcStatusInTrailers, setting);
                self.decider.warnings.add(warning.about(rule.path()));
            });
        }
    }
}

impl Admission {
    /// Does what its rule says with what a request or a call was charged whose service or function
    /// has failed.
    pub(super) fn service_failed(&mut self) {
        self.is_answered = true;
        self.tell_error();
        if self.rule.lockout_outcomes()[1].is_some_and(Outcomes::contain_error) {
            self.apply(Effect::Succeeded);
        }
    }

    /// The same where a callback answers, whose response may be a failure: it is no success yet.
    pub(super) fn tell_error(&self) {
        let is_error = |it: Option<&Outcomes>| it.is_some_and(Outcomes::contain_error);
        if is_error(self.rule.outcomes()) {
            self.apply(Effect::Refund);
        }
        if is_error(self.rule.lockout_outcomes()[0]) {
            self.apply(Effect::Failed);
        }
    }

    /// Does this with what the request was charged.
    pub(super) fn apply(&self, effect: Effect) {
        self.answer.iter().for_each(|it| effect.apply(it));
        self.shadow.iter().for_each(|it| it.apply(effect));
    }

    /// What waits for a failure in the trailers of this response, if one may be there.
    pub(super) fn late_failure(&self, response: &response::Parts) -> Option<Box<LateFailure>> {
        let on = self.rule.lockout_outcomes()[0].filter(|it| it.have_grpc());
        on.filter(|_| LayerResponse::of_layer(&response.extensions).is_none())?;
        let mut late = self.gate.admit(Arc::clone(&self.rule));
        late.is_answered = true;
        (late.answer, late.shadow) = (self.answer.clone(), self.shadow.clone());
        late.answer.iter_mut().for_each(Charge::stop_keeping_open);
        Some(Box::new(LateFailure(response.status, late)))
    }
}

/// A failure that the trailers of a response with this status may tell.
pub(super) struct LateFailure(StatusCode, Admission);

/// Those of a request, its own or that of a shadow rule: the body of its response has them.
type RequestPermits = (Option<Permit>, Option<LatePermit>);

impl<D> FrameWatcher<D> for (RequestPermits, Option<Box<LateFailure>>) {
    fn watch(&mut self, frame: &Frame<D>) {
        let Some((LateFailure(status, admitted), trailers)) =
            self.1.as_deref().zip(frame.trailers_ref())
        else {
            return;
        };
        let answer = Statuses::new(*status, trailers);
        let on = admitted.rule.lockout_outcomes()[0].filter(|it| it.contain(answer));
        if on.is_some() && answer.grpc().next().is_some() {
            admitted.apply(Effect::Failed);
        }
    }
}
