//! The answers of this crate's own as problem documents (RFC 9457) of the types that the draft of the
//! `RateLimit` fields registers, and of one more for a busy rule; and panics of user code.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::{self, Display};
use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};

use axum_core::response::Response;
use futures_util::FutureExt;
use http::StatusCode;
use http::request::Parts;
use tokio::time::Instant;

use super::degrade_callback::{BoxFuture, DegradeCallback, Denied};
use super::error_callback::{ErrorCallback, Failed, FailureKind, Recovery};
use super::form::{AnswerForm, AnswerReason, Form, of_type};
use crate::decision::{Decision, Source, Verdict};
use crate::error::{KeyError, KeyErrorKind};
use crate::rule::headers::MAX_RETRY_AFTER;
use crate::rule::{Policy, Rule};
use crate::trace;

const EXCEEDED: &str = "Request cannot be satisfied as assigned quota has been exceeded";
const EXCEEDED_TYPE: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// What a [busy](Decision::is_busy) rule is called, and where that is explained.
const BUSY: &str = "As many requests as may run at a time are in progress";
/// What a [locked-out](Decision::is_locked_out) key is told. No quota is violated.
const LOCKED_OUT: &str = "Request not satisfied due to detection of abnormal request pattern";
const LOCKED_OUT_TYPE: &str =
    "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
/// This is said about a request that would be denied at any time.
const NEVER: &str = "The request costs more than a quota ever admits, so it is denied at any time";
/// The detail of a problem whose call to a partner was denied.
const BEHIND: &str = ",\"detail\":\"A service behind is busy\"";
const BUSY_TYPE: &str =
    "https://docs.rs/tidegate/latest/tidegate/callback/struct.Problem.html#busy";

/// A problem document, with the seconds of `Retry-After` where the response has that field.
pub(super) fn answer(reason: &AnswerReason<'_>, retry_after: Option<u64>) -> Response {
    let mut status = reason.status();
    let members = match reason {
        AnswerReason::Denied(rule, decision) => {
            status = rule.answers().status.unwrap_or(status);
            quota_exceeded(rule, decision, status)
        }
        AnswerReason::NoDecision => reduced_capacity(status, "").into(),
        AnswerReason::Behind => reduced_capacity(status, BEHIND).into(),
        AnswerReason::Mistake(_, reason) => mistake(status, reason).into(),
    };
    let mut number = itoa::Buffer::new();
    let [name, seconds] = retry_after.map_or([""; 2], |seconds| {
        let seconds = number.format(seconds.min(MAX_RETRY_AFTER));
        [",\"retry-after\":", seconds]
    });
    let body = [&*members, name, seconds, "}"].concat();
    of_type("application/problem+json", status, body)
}

impl AnswerReason<'_> {
    /// A text for forms without a document of their own.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Denied(rule, decision) => {
                let is_busy = shows_busy(rule, decision);
                if is_for_now(decision) {
                    return Self::NoDecision.message();
                }
                let mut message = match () {
                    () if is_busy => BUSY.to_ascii_lowercase(),
                    () if decision.is_denied_by_lockout() => LOCKED_OUT.to_ascii_lowercase(),
                    () => "quota exceeded".to_owned(),
                };
                for (at, policy) in shown_policies(rule, decision).enumerate() {
                    message.push_str(if at == 0 { ": " } else { ", " });
                    message.push_str(policy.name());
                    if is_busy {
                        message.push_str(&format!(" ({})", policy.quota().max()));
                    }
                }
                message
            }
            Self::NoDecision => "temporary reduced capacity".to_owned(),
            Self::Behind => "a service behind is busy".to_owned(),
            Self::Mistake(status, reason) if cfg!(debug_assertions) => {
                format!("{}: {reason}", title(*status).to_ascii_lowercase())
            }
            Self::Mistake(status, _) => title(*status).to_ascii_lowercase(),
        }
    }
}

/// The quotas that denied the take, without those of which clients are not told.
pub(super) fn shown_policies<'a>(
    rule: &'a Rule,
    decision: &'a Decision,
) -> impl Iterator<Item = &'a Policy> {
    let denied_by = decision.denied_by(rule.policies());
    denied_by.filter(|policy| !policy.is_hidden())
}

/// Whether the client is told that nothing but the requests at a time denied it.
fn shows_busy(rule: &Rule, decision: &Decision) -> bool {
    decision.is_busy() && shown_policies(rule, decision).next().is_some()
}

/// Whether the client is told that no time makes room for the request. A quota of 0 is no question
/// of the cost.
pub(super) fn shows_never(rule: &Rule, decision: &Decision) -> bool {
    let is_about_cost = |policy: &Policy| policy.quota().max() > 0;
    decision.verdict() == Verdict::Never && shown_policies(rule, decision).any(is_about_cost)
}

// The members of a document, up to the brace that ends them.

fn quota_exceeded<'a>(rule: &'a Rule, decision: &Decision, status: StatusCode) -> Cow<'a, str> {
    match rule.policies() {
        _ if shows_busy(rule, decision) => write_busy(rule, decision, status).into(),
        _ if is_for_now(decision) => reduced_capacity(status, "").into(),
        _ if decision.is_denied_by_lockout() => {
            (begun(LOCKED_OUT_TYPE, LOCKED_OUT, status) + "]").into()
        }
        // A denial without exceeded quotas is that of a custom store.
        [_] if decision.verdict() != Verdict::Never
            && decision.denied_by(rule.policies()).next().is_some() =>
        {
            let members = || write_quota_exceeded(rule, decision, status);
            rule.texts().denial.get_or_init(members).into()
        }
        _ => write_quota_exceeded(rule, decision, status).into(),
    }
}

/// Begins the members of a document of this type: the names of the policies come next.
fn begun(kind: &str, title: &str, status: StatusCode) -> String {
    let status = status.as_u16();
    format!(
        "{{\"type\":\"{kind}\",\"title\":\"{title}\",\"status\":{status},\"violated-policies\":["
    )
}

fn write_quota_exceeded(rule: &Rule, decision: &Decision, status: StatusCode) -> String {
    let mut body = begun(EXCEEDED_TYPE, EXCEEDED, status);
    push_names(&mut body, rule, decision);
    body.push(']');
    if shows_never(rule, decision) {
        body.push_str(&format!(",\"detail\":\"{NEVER}\",\"never\":true"));
    }
    body
}

/// Also says how many requests each of the policies lets run at a time.
fn write_busy(rule: &Rule, decision: &Decision, status: StatusCode) -> String {
    let mut body = begun(BUSY_TYPE, BUSY, status);
    push_names(&mut body, rule, decision);
    body.push_str("],\"max-concurrent\":[");
    for (at, policy) in shown_policies(rule, decision).enumerate() {
        let comma = if at == 0 { "" } else { "," };
        body.push_str(&format!("{comma}{}", policy.quota().max()));
    }
    body.push(']');
    body
}

pub(super) fn push_names(body: &mut String, rule: &Rule, decision: &Decision) {
    for (at, policy) in shown_policies(rule, decision).enumerate() {
        body.push_str(if at == 0 { "\"" } else { ",\"" });
        // A policy's name has no quotes, backslashes or control characters.
        body.push_str(policy.name());
        body.push('"');
    }
}

/// The document of a request about which the store has not decided, or for which a service behind
/// has no room.
fn reduced_capacity(status: StatusCode, detail: &str) -> String {
    let status = status.as_u16();
    format!(
        "{{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\",\
        \"title\":\"Request cannot be satisfied due to temporary server capacity constraints\",\
        \"status\":{status}{detail}"
    )
}

/// Whether a fallback has denied a request by its quotas: the store itself may have room.
fn is_for_now(decision: &Decision) -> bool {
    decision.source() == Source::Fallback && matches!(decision.verdict(), Verdict::Denied { .. })
}

/// A 400 or 500 for a request without a key, depending on whose mistake that is.
pub(crate) fn key_refused(error: &KeyError, form: &AnswerForm) -> Response {
    match error.kind() {
        KeyErrorKind::Absent | KeyErrorKind::Malformed => {
            AnswerReason::Mistake(StatusCode::BAD_REQUEST, error).answer(form, None)
        }
        _ => internal_error(error, form),
    }
}

/// A 500. The log tells what went wrong.
pub(crate) fn internal_error(reason: &dyn Display, form: &AnswerForm) -> Response {
    AnswerReason::Mistake(StatusCode::INTERNAL_SERVER_ERROR, reason).answer(form, None)
}

fn title(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "Bad Request",
        _ => "Internal Server Error",
    }
}

/// A 400 or 500. In debug builds it says what is wrong; others do not tell a client what a key is
/// made of.
fn mistake(status: StatusCode, reason: &dyn Display) -> String {
    let (title, number) = (title(status), status.as_u16());
    let mut body = format!("{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{number}");
    if cfg!(debug_assertions) {
        body.push_str(",\"detail\":\"");
        push_json(&mut body, &reason.to_string());
        body.push('"');
    }
    body
}

/// Adds a text to a string of a JSON document.
pub(crate) fn push_json(document: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '"' | '\\' => document.extend(['\\', character]),
            // JSON allows no control characters.
            _ if character.is_control() => document.push(' '),
            _ => document.push(character),
        }
    }
}

/// Answers with a problem document ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)), and
/// [gRPC requests](super::is_grpc) with a gRPC status. The default of both callbacks.
///
/// | the request | the response | of gRPC |
/// |---|---|---|
/// | was denied | 429, or the `status` of its file, with the names of the quotas that are used up | 8, `RESOURCE_EXHAUSTED` |
/// | can [never](crate::decision::Verdict::Never) fit | 429, with `"never": true`, a `detail` that says so, and no `Retry-After` | 8, `RESOURCE_EXHAUSTED` |
/// | found no [permit](crate::Rule::with_max_concurrent) | 429, [busy](#busy) | the same |
/// | is [locked out](crate::Rule::with_lockout) | 429, of the type `abnormal-usage-detected` | the same |
/// | was denied a call to a [partner](crate::Rule::with_outgoing) | 503, whose `detail` says that a service behind is busy, with `Retry-After` and no `RateLimit` fields | 14, `UNAVAILABLE` |
/// | got no decision of the store | 503, with `Retry-After` | 14, `UNAVAILABLE` |
/// | has no key, by the client's mistake | 400 | 3, `INVALID_ARGUMENT` |
/// | has no key, by the server's mistake | 500 | 13, `INTERNAL` |
/// | was allowed, and its handler failed | none: the handler's error is returned | the same |
///
/// `docs/problem.schema.json` of the repository is the JSON schema of these documents, with examples.
/// Where the response has `Retry-After`, the document has its seconds as `retry-after`.
///
/// The [kind](crate::key::KeyErrorKind) of the error says whose mistake a missing key is. A gRPC
/// response is 200 with the status in its head (*trailers only*), and mirrors the request's content
/// type. `Retry-After` and the `RateLimit` fields are the same as in HTTP: gRPC clients find them
/// in the metadata of the status. The details of a denial, `google.rpc.RetryInfo` and
/// `QuotaFailure`, say the same. `grpc-retry-pushback-ms`, which clients with a retry policy obey,
/// is the wait in milliseconds where that ends 100 ms before the call's `grpc-timeout` (without one,
/// within 5 s); otherwise a denial has `-1`, do not retry, and a request without a decision has none.
///
/// Caches keep no answer over HTTP: all have `Cache-Control: no-store`. `Retry-After` of a 503 is
/// the [pause](crate::Resilient::probe_every) before the store is asked again, at least 1 s, with
/// the rule's [jitter](crate::Rule::with_retry_after_jitter).
///
/// What is missing or went wrong is shown only in builds with debug assertions: in the `detail` of
/// the document, or behind a colon in the message of the status.
///
/// # Busy
///
/// As many requests as may run [at a time](crate::Rule::with_max_concurrent) are in progress, and
/// no quota is used up. There is room as soon as one of them ends, so `Retry-After` is a
/// [hint](crate::Rule::with_busy_retry). The document has a type of its own, the address of this
/// section. Beside the names of the policies that denied it stands how many requests each lets run:
///
/// ```json
/// {"type": "https://docs.rs/tidegate/latest/tidegate/callback/struct.Problem.html#busy",
///  "title": "As many requests as may run at a time are in progress", "status": 429,
///  "violated-policies": ["export-concurrent"], "max-concurrent": [4], "retry-after": 1}
/// ```
///
/// The message of a gRPC status has the same names and numbers: `export-concurrent (4)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Problem;

/// The form that a callback finds from the head of a request.
pub(super) fn form_of(head: &Parts) -> AnswerForm {
    AnswerForm::new(
        Form::Problem,
        &head.method,
        &head.uri,
        &head.headers,
        Instant::now,
    )
}

/// `Retry-After` of a callback's answer, before its bound: an extension of the head that it gets.
#[derive(Clone)]
pub(crate) struct RetryAfter(pub(crate) Option<u64>);

fn answer_to(head: &Parts, reason: &AnswerReason<'_>) -> Response {
    let retry_after = head.extensions.get().and_then(|RetryAfter(it)| *it);
    reason.answer(&form_of(head), retry_after)
}

impl DegradeCallback for Problem {
    fn degrade(&self, denied: Denied) -> BoxFuture<'_, Response> {
        let reason = AnswerReason::of_denial(&denied.rule, &denied.decision);
        Box::pin(ready(answer_to(&denied.head, &reason)))
    }
}

impl ErrorCallback for Problem {
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery> {
        let form = &form_of(&failed.head);
        Box::pin(ready(match failed.kind() {
            FailureKind::Inner => Recovery::Propagate,
            FailureKind::Key(_) => match failed.downcast_ref::<KeyError>() {
                Some(error) => Recovery::Respond(key_refused(error, form)),
                None => Recovery::Propagate,
            },
            FailureKind::Store(_) => {
                Recovery::Respond(answer_to(&failed.head, &AnswerReason::NoDecision))
            }
        }))
    }
}

// Panics of user code are caught, logged and answered with a 500.

/// A panic that was caught and logged: in whose code it was.
#[derive(Debug, Clone)]
pub(crate) struct Panicked(String);

impl Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Runs user code, and catches and logs its panic. The code borrows nothing of this crate mutably,
/// so a panic leaves nothing half changed.
pub(crate) fn caught<T>(who: &str, path: &str, run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| logged(who, path, &*panic))
}

/// Awaits user code, and catches and logs its panic, both when it is called and when it is polled.
pub(crate) async fn guarded<T, Fut: Future<Output = T>>(
    who: &str,
    path: &str,
    run: impl FnOnce() -> Fut,
) -> Result<T, Panicked> {
    let guarded = AssertUnwindSafe(async { run().await }).catch_unwind();
    guarded.await.map_err(|panic| logged(who, path, &*panic))
}

fn logged(who: &str, path: &str, panic: &(dyn Any + Send)) -> Panicked {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = crate::unseen::blanked(text.unwrap_or("no message"));
    trace::event!(error: path, who, message, "a panic was caught");
    Panicked(format!("the {who} of {path:?} panicked, see the log"))
}
