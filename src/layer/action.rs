use std::sync::Arc;

use axum_core::BoxError;
use axum_core::body::Body;
use axum_core::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderMap, HeaderValue};
use http::request::Parts;
use http_body::Body as HttpBody;
use tokio::time::Instant;

use super::decisions::{Decided, Deciding};
use super::gate::Gate;
use super::outer_layers::Outage;
use crate::callback::{BoxFuture, Cause, DegradeCallback, ErrorCallback, Panicked, recover_inner};
use crate::charge::{
    Answers, Charge, Effect, LateCharge, LatePermit, LayerResponse, Permit, WatchedBody,
};
use crate::decision::Decision;
use crate::rule::Rule;
use crate::take::Take;
use crate::warning::{Warning, WarningKind};

/// What a layer does with a request.
#[allow(
    clippy::large_enum_variant,
    reason = "a box would cost a denial an allocation"
)]
pub(crate) enum Action {
    /// The inner service is called as if there were no layer.
    Pass,
    /// The inner service is called.
    Admit(Admission),
    /// The degrade callback answers.
    Degrade(Arc<dyn DegradeCallback>, Take, Decision),
    /// The error callback gets the failure of what was decided. It answers, or chooses the action.
    Recover(Arc<dyn ErrorCallback>, Decided),
    /// This crate answers at once, in the form that the request expects.
    Refuse(Refusal),
    /// The same, because a callback has panicked.
    Panicked(Panicked),
    /// The error callback has answered.
    Respond(Response),
}

/// How far a request is: what its head says is done with it, or the decision about its take.
pub(super) type Begun = Result<Deciding, Action>;

/// Why a request or a call does not go on.
#[derive(Clone)]
pub(crate) enum Refusal {
    Denied(Take, Decision),
    /// There is no decision.
    Failed(Arc<Rule>, Cause),
}

impl From<Panicked> for Box<Action> {
    #[cold]
    fn from(panicked: Panicked) -> Self {
        Self::new(Action::Panicked(panicked))
    }
}

/// An admitted request, until its response is there.
pub(crate) struct Admission {
    pub(super) rule: Arc<Rule>,
    /// The decision, with what was charged. Missing if the request was admitted without one.
    pub(super) answer: Option<Charge>,
    /// What a shadow rule was charged for the request, which does not show it.
    pub(super) shadow: Option<Arc<LateCharge>>,
    /// Is dropped with the body of the response.
    pub(super) permit: Option<Permit>,
    /// That of a shadow rule.
    pub(super) permit_in_shadow: Option<LatePermit>,
    pub(super) gate: Arc<Gate>,
    /// The request's head for the error callback, kept while the inner service has the request.
    pub(super) head: Option<Box<Parts>>,
    /// Since when the request has waited, for inner layers.
    pub(super) waiting_since: Option<Instant>,
    /// What inner layers have to know, if the store failed.
    pub(super) outage: Option<Box<Outage>>,
    /// Whether it asks for a tunnel: a success is one then, as of a WebSocket over HTTP/2.
    pub(super) is_connect: bool,
    /// Whether the answer is there: no drop comes before it any more.
    pub(super) is_answered: bool,
}

impl Drop for Admission {
    fn drop(&mut self) {
        if !self.is_answered
            && let Some(units) = self.rule.settle_dropped()
            && !self.answer.as_ref().is_some_and(Charge::is_kept_by_code)
        {
            self.apply(Effect::settle(units));
        }
    }
}

impl Admission {
    /// Lets the error callback answer an error of the inner service, which has ended.
    #[cold]
    pub(super) fn recover<E>(
        mut self,
        error: E,
    ) -> Result<BoxFuture<'static, Result<Response, E>>, E>
    where
        E: Send + Sync + 'static,
    {
        let (Some(head), Some(callback)) = (self.head.take(), &self.gate.options.on_error) else {
            self.service_failed();
            return Err(error);
        };
        let callback = Arc::clone(callback);
        (self.permit, self.permit_in_shadow) = (None, None);
        self.tell_error();
        let rule = Arc::clone(&self.rule);
        let form = self.gate.form_of(&head, None);
        Ok(Box::pin(async move {
            match recover_inner(callback, rule, *head, form, error).await {
                Ok(mut response) => {
                    forbid_storing(response.headers_mut());
                    Ok(self.finish(response))
                }
                Err(error) => {
                    self.service_failed();
                    Err(error)
                }
            }
        }))
    }

    /// The response to the client. What was charged is given back, if this outcome says so.
    pub(super) fn finish<B>(mut self, response: http::Response<B>) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.is_answered = true;
        let is_charged = self.answer.is_some() || self.shadow.is_some();
        let gives_back = self.gate.decider.gives_back;
        let is_read = is_charged && (gives_back || self.rule.reads_response());
        let has_permit = self.permit.is_some() || self.permit_in_shadow.is_some();
        let mut response = if is_read || has_permit {
            self.watch_response(response, is_read)
        } else {
            response.map(Body::new)
        };
        if let Some(mut answer) = self.answer.take() {
            answer.stop_keeping_open();
            // A meter knows what a body says of itself, also one that is made further out.
            if response.body().size_hint().exact().is_none() {
                let length = response.headers().get(CONTENT_LENGTH);
                answer.note_length(length.and_then(|it| it.to_str().ok()?.parse().ok()));
            }
            let (options, shown) = (&self.gate.options, answer.settled_decision());
            let fields = options.show(&self.rule, shown, None, &mut response);
            if !options.without_extensions.response {
                Answers::add_outer(response.extensions_mut(), answer, fields);
            }
        }
        response
    }

    /// This response, of which the outcome is read, or whose body keeps the permit.
    #[cold]
    fn watch_response<B>(&mut self, mut response: http::Response<B>, is_read: bool) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut late_failure = None;
        if is_read {
            let (head, body) = response.into_parts();
            let effects = self.gate.effects(&self.rule, &head).into_iter();
            effects.flatten().for_each(|effect| self.apply(effect));
            late_failure = self.late_failure(&head);
            response = http::Response::from_parts(head, body);
        }
        let status = response.status();
        let is_upgrade = status == 101 || self.is_connect && status.is_success();
        let permits = (self.permit.take(), self.permit_in_shadow.take());
        if is_upgrade && !matches!(permits, (None, None)) {
            let warning = Warning::new(WarningKind::PermitOfUpgrade);
            self.gate
                .decider
                .warnings
                .add(warning.about(self.rule.path()));
        }
        match (permits, late_failure) {
            ((None, None), None) => response.map(Body::new),
            watcher => response.map(|body| {
                // A server may never poll an empty body.
                let watcher = (!body.is_end_stream()).then_some(watcher);
                Body::new(WatchedBody::new(body, watcher))
            }),
        }
    }
}

/// A response that a layer made in place of the inner service, as outer layers know it.
pub(super) fn marked(mut response: Response) -> Response {
    forbid_storing(response.headers_mut());
    let mark: &mut LayerResponse = response.extensions_mut().get_or_insert_default();
    mark.is_of_check = false;
    response
}

/// A cache would give one client's answer to others. A callback may have said what caches may do;
/// what gRPC answers they never keep.
pub(super) fn forbid_storing(headers: &mut HeaderMap) {
    if !headers.contains_key("grpc-status") {
        let no_store = HeaderValue::from_static("no-store");
        headers.entry(CACHE_CONTROL).or_insert(no_store);
    }
}
