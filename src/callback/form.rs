use std::fmt::Display;

use axum_core::body::Body;
use axum_core::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use tokio::time::Instant;

use super::grpc::{self, GrpcCall};
use super::{connect, json_rpc, problem_document};
use crate::decision::Decision;
use crate::rule::Rule;

/// In which form a layer answers by itself: a denial, and a request without a decision or a key.
///
/// [gRPC](super::is_grpc) is found from the request, and so are calls of the
/// [Connect protocol](https://connectrpc.com/docs/protocol): a POST with
/// `connect-protocol-version: 1` and the content type `application/json` or `application/proto`, a
/// GET with `connect=v1` in its query, and a POST of `application/connect+..`, a stream, whose
/// answer is a 200 with one message. Under [`Http`](Self::Http) they are not. A form does not
/// change what callbacks answer.
///
/// ```
/// use tidegate::callback::Form;
/// use tidegate::{Limits, Quota, Rule};
///
/// let limits = Limits::new([Rule::new("mcp", [Quota::per_minute(60)])?]);
/// let layer = limits.layer("mcp").form(Form::JsonRpc);
/// # let _ = layer;
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Form {
    /// A [problem document](super::Problem). The default.
    #[default]
    Problem,
    /// The JSON of an error of the Connect protocol, with its `code` and `message`, for all
    /// requests: also for what a handler answers with a [`Refused`](crate::layer::Refused), which
    /// knows no request.
    Connect,
    /// An error of [JSON-RPC 2.0](https://www.jsonrpc.org/specification), such as clients of MCP
    /// show, to each POST; others get a problem document. The `code` is -32000 for a denial and for a
    /// request without a decision, -32600 where the client left its key out, and -32603 for a
    /// mistake of the server. `id` is null, since the body is not read, and `data` has
    /// `retry_after_s`, the seconds of `Retry-After` without its bound, or `never` where the cost is
    /// above a max (neither under a max of 0), and `quotas`, the names of those that denied the
    /// request. The HTTP status stays what it is.
    JsonRpc,
    /// A [problem document](super::Problem) with its HTTP status, whatever was asked, also under
    /// gRPC: for a route whose status alone is read, such as one that a proxy asks whether a
    /// request may pass. By its content type a client could choose a 200 for a denial there.
    Http,
}

/// The form of one answer.
pub(crate) enum AnswerForm {
    Problem,
    Grpc(GrpcCall),
    Connect,
    /// With the content type, which the answer repeats.
    ConnectStream(HeaderValue),
    JsonRpc,
}

impl AnswerForm {
    /// The form for a request with this head, which arrived then, in a layer that answers in this
    /// form.
    pub(crate) fn new(
        form: Form,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        arrived: impl FnOnce() -> Instant,
    ) -> Self {
        if form == Form::Http {
            return Self::Problem;
        }
        if let Some(call) = GrpcCall::detect(method, headers, arrived) {
            return Self::Grpc(call);
        }
        if let Some(content_type) = connect::stream(method, headers) {
            return Self::ConnectStream(content_type.clone());
        }
        match form {
            _ if connect::is_unary(method, uri, headers) => Self::Connect,
            Form::JsonRpc if method == Method::POST => Self::JsonRpc,
            Form::Connect => Self::Connect,
            Form::Problem | Form::JsonRpc | Form::Http => Self::Problem,
        }
    }

    /// The form for a request about which nothing is known, in a layer that answers in this form.
    pub(crate) fn without_head(form: Form) -> Self {
        match form {
            Form::Problem | Form::Http => Self::Problem,
            Form::Connect => Self::Connect,
            Form::JsonRpc => Self::JsonRpc,
        }
    }

    pub(crate) fn grpc(&self) -> Option<&GrpcCall> {
        match self {
            Self::Grpc(call) => Some(call),
            _ => None,
        }
    }
}

/// Why a request is refused, which the answer says in each form.
pub(crate) enum AnswerReason<'a> {
    /// The take was denied.
    Denied(&'a Rule, &'a Decision),
    /// There is no decision.
    NoDecision,
    /// A call to a partner was denied: of its quotas no client is told.
    Behind,
    /// The request has no key, or something of the server is wrong.
    Mistake(StatusCode, &'a dyn Display),
}

impl<'a> AnswerReason<'a> {
    /// Why this take was denied.
    pub(crate) fn of_denial(rule: &'a Rule, decision: &'a Decision) -> Self {
        match rule.is_outgoing() {
            true => Self::Behind,
            false => Self::Denied(rule, decision),
        }
    }

    /// The answer in this form, with this `Retry-After`, before its bound.
    pub(crate) fn answer(&self, form: &AnswerForm, retry_after: Option<u64>) -> Response {
        match form {
            AnswerForm::Problem => problem_document::answer(self, retry_after),
            AnswerForm::Grpc(call) => grpc::answer(self, call),
            AnswerForm::Connect => connect::answer(self),
            AnswerForm::ConnectStream(content_type) => connect::end_of_stream(self, content_type),
            AnswerForm::JsonRpc => json_rpc::answer(self, retry_after),
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Denied(..) => StatusCode::TOO_MANY_REQUESTS,
            Self::NoDecision | Self::Behind => StatusCode::SERVICE_UNAVAILABLE,
            Self::Mistake(status, _) => *status,
        }
    }

    /// The status code of gRPC, as its field has it, and its name in Connect.
    pub(super) fn code(&self) -> (&'static str, &'static str) {
        match self {
            Self::Denied(..) => (grpc::RESOURCE_EXHAUSTED, "resource_exhausted"),
            Self::NoDecision | Self::Behind => (grpc::UNAVAILABLE, "unavailable"),
            Self::Mistake(StatusCode::BAD_REQUEST, _) => ("3", "invalid_argument"),
            Self::Mistake(..) => ("13", "internal"),
        }
    }
}

/// A response with this body of this content type.
pub(super) fn of_type(name: &'static str, status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(name);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}
