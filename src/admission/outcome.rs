use std::any::Any;
use std::sync::Arc;

use axum_core::BoxError;
use axum_core::body::Body;
use axum_core::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http_body::Body as HttpBody;
use tokio::time::Instant;

use super::body::PermitBody;
use super::shadow_take::ShadowTake;
use super::waiting::Waiter;
use crate::callback::{BoxFuture, ErrorCallback, recover_inner, reduced_capacity};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::rule::Rule;
use crate::store::{Charge, Charges, StoreFuture, Take};
use crate::trace::TakeSpan;

/// What becomes of a request.
#[allow(
    clippy::large_enum_variant,
    reason = "a box for the question would cost each request an allocation"
)]
pub(crate) enum Outcome {
    /// The inner service is called.
    Admit(Admitted),
    /// The store's answer is pending. It stands beside its request without an allocation.
    Ask(Question),
    /// The outcome comes later. Meanwhile the request keeps no instance of the inner service ready.
    Wait(BoxFuture<'static, Outcome>),
    /// The degrade callback answers.
    Deny(Callback<Response>),
    /// The error callback answers or chooses the next outcome.
    Fail(Callback<Outcome>),
    /// The client gets this response.
    Respond(Response),
}

/// Calls a callback about the request with this head.
pub(crate) type Callback<T> = Box<dyn FnOnce(Parts) -> BoxFuture<'static, T> + Send>;

impl Outcome {
    /// A failed store is answered with a 503.
    pub(crate) fn unavailable() -> Self {
        Self::Respond(reduced_capacity())
    }
}

/// A question to a store.
pub(crate) struct Question {
    pub(crate) handler: Arc<dyn AnswerHandler>,
    pub(crate) asked: AskedTake,
    pub(crate) answer: StoreFuture<Decision>,
}

/// A take that a store was asked.
pub(crate) struct AskedTake {
    pub(crate) take: Take,
    /// When it was asked. `None` where no request may wait, if the answer is there at once.
    pub(crate) at: Option<Instant>,
    /// The waiter, if the request has waited already.
    pub(crate) waiter: Option<Waiter>,
    /// The take of the candidate that is tried beside the rule.
    pub(crate) shadow: Option<Box<ShadowTake>>,
    /// The span around the call of the store.
    pub(crate) span: TakeSpan,
}

/// Turns a store's answer into an outcome. The layers implement it.
pub(crate) trait AnswerHandler: Send + Sync {
    fn answered(self: Arc<Self>, asked: AskedTake, answer: Result<Decision, StoreError>)
    -> Outcome;
}

/// Writes a decision into a response, for the client.
pub(crate) type WriteDecision = Arc<dyn Fn(&Arc<Rule>, Decision, &mut Response) + Send + Sync>;

pub(super) type Recovered<E> = BoxFuture<'static, Result<Response, E>>;

/// An admitted request, until its response is there.
pub(crate) struct Admitted {
    pub(super) rule: Arc<Rule>,
    /// Missing if the request was admitted without one.
    pub(crate) decision: Option<Decision>,
    /// Missing if nothing was charged.
    pub(crate) charge: Option<Charge>,
    /// Is dropped with the body of the response.
    pub(crate) permit: Option<Box<dyn Any + Send>>,
    pub(super) write_decision: WriteDecision,
    /// Is called for errors of the inner service.
    pub(super) on_error: Option<Arc<dyn ErrorCallback>>,
    /// The request's head for that callback, kept while the inner service has the request.
    pub(super) head: Option<Box<Parts>>,
}

impl Admitted {
    /// Without decision, charge and permit, for the time being.
    pub(super) fn new(
        rule: Arc<Rule>,
        write_decision: WriteDecision,
        on_error: Option<Arc<dyn ErrorCallback>>,
    ) -> Self {
        Self {
            rule,
            decision: None,
            charge: None,
            permit: None,
            write_decision,
            on_error,
            head: None,
        }
    }

    /// Lets the error callback answer an error of the inner service, which has ended.
    pub(super) fn recover<E>(&mut self, error: E) -> Result<Recovered<E>, E>
    where
        E: Send + Sync + 'static,
    {
        let (Some(head), Some(callback)) = (self.head.take(), self.on_error.take()) else {
            return Err(error);
        };
        self.permit = None;
        let rule = Arc::clone(&self.rule);
        Ok(Box::pin(recover_inner(callback, rule, *head, error)))
    }

    /// The response to the client.
    pub(super) fn finish<B>(self, response: http::Response<B>) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut response = match self.permit {
            None => response.map(Body::new),
            Some(permit) => response.map(|body| Body::new(PermitBody::new(body, permit))),
        };
        if let Some(charge) = self.charge {
            Charges::add_outer(charge, response.extensions_mut());
        }
        if let Some(decision) = self.decision {
            (self.write_decision)(&self.rule, decision, &mut response);
        }
        response
    }
}
