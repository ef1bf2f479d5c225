//! Which outcomes of a request give its charge back.

use std::sync::Arc;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::rule::Rule;
use super::rule_error::RuleError;

impl Rule {
    /// Gives a request's charge back when its response has one of these outcomes: a class of HTTP
    /// statuses such as `"2xx"`, a status such as `"304"`, or a gRPC status such as `"grpc-0"`. So
    /// only failed logins count, for example. `"error"` is an `Err` of the inner service, or of the
    /// function of a [call](crate::Limits::call). `"denied"` is always among them: an inner layer of
    /// the same [`Limits`](crate::Limits) has denied the request, so that two rules in a row do not
    /// both count a request that only one of them denies. Default: nothing is given back.
    ///
    /// A request is charged first, as ever, and given back when the head of its response is there:
    /// while five logins of five allowed ones are in progress, a sixth is denied, also if all five
    /// are good. A request stays charged if it is dropped before that, if the inner service ends
    /// with an error that is not among them, and if an inner layer of this crate answered in the
    /// place of the handler, with a failure, or with a denial of another `Limits`. The
    /// [`Refused`](crate::layer::Refused) of a check that the handler returns is the handler's
    /// answer, such as a 429, and so is what an error callback makes of its error; but that of an
    /// [outgoing](Self::with_outgoing) call counts as `"denied"`. The fields of a response say what
    /// was left before its own charge is given back. A shadow rule is given back alike.
    ///
    /// What a client can bring about is free without any bound: a `"5xx"` by a bad prompt, an
    /// `"error"` by a broken body, a `"304"`, a `"4xx"`. Another rule that gives nothing back
    /// bounds it.
    ///
    /// While requests of a key are in progress in this process whose charges would make room, the
    /// fields of a denial say 1 second in place of the window; [`Decision::retry_after`] is the
    /// store's. A layer that [waits](crate::RateLimitLayer::wait) lets such a request wait for
    /// them.
    ///
    /// [`Decision::retry_after`]: crate::Decision::retry_after
    ///
    /// The response alone says what its statuses are, and one of them is enough. A status other
    /// than 200 is one of HTTP, and each `grpc-status` in the head is one of gRPC. A 200 is one of
    /// HTTP, unless the head has a `grpc-status` above 0, or has none though its content type is
    /// `application/grpc`: that comes in the trailers, too late, which is a
    /// [warning](crate::warning::WarningKind::GrpcStatusInTrailers), and nothing is given back.
    ///
    /// What cannot be given back, because the store fails or more than 4,096 refunds of a
    /// [`Limits`](crate::Limits), or of a layer of its own, wait for its answers, stays charged,
    /// and is [counted](crate::metrics::RuleSnapshot::refunds_lost). See
    /// [`Limits::flush`](crate::Limits::flush) for the end of a process, and
    /// [`RateLimitLayer::refund_if`](crate::RateLimitLayer::refund_if) for other conditions.
    ///
    /// ```
    /// use tidegate::{PeerIp, Quota, Rule};
    ///
    /// let login = Rule::new("login", [Quota::per_minute(5)])?
    ///     .with_key(PeerIp)
    ///     .with_refund_on(["2xx", "3xx"])?;
    /// assert!(login.refund_on().eq(["2xx", "3xx"]));
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError`] if one of them is no outcome, or if there is none.
    pub fn with_refund_on<'a>(
        self,
        outcomes: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, RuleError> {
        let outcomes = Arc::new(Outcomes::parse(outcomes)?);
        Ok(self.with(|it| it.refund_on = Some(outcomes)))
    }

    /// The outcomes for which a charge is given back, as [`with_refund_on`](Self::with_refund_on)
    /// takes them: classes, statuses, gRPC statuses; `"denied"` where there is no other one.
    pub fn refund_on(&self) -> impl Iterator<Item = String> {
        self.outcomes().into_iter().flat_map(Outcomes::texts)
    }

    /// The outcomes of `refund-on`, to be compared with.
    pub(crate) fn outcomes(&self) -> Option<&Outcomes> {
        self.settings.refund_on.as_deref()
    }

    /// Whether the response to a request, or the answer to a call, matters.
    pub(crate) fn reads_response(&self) -> bool {
        self.outcomes().is_some() || self.counts_failures() || self.is_outgoing()
    }
}

/// The outcomes for which a rule gives a request's charge back: see
/// [`Rule::with_refund_on`](crate::Rule::with_refund_on). Classes, statuses, gRPC statuses; without
/// [`DENIED`](Self::DENIED), which is always among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcomes(Vec<Box<str>>);

impl Outcomes {
    /// What an outcome may be, for messages.
    pub(crate) const EXPECTED: &str = "\"1xx\" to \"5xx\", a status such as \"304\", \"grpc-0\" to \
         \"grpc-16\", \"error\", or in refund-on \"denied\"";
    /// What the status of a refusal may be.
    pub(crate) const STATUSES: &str =
        "\"3xx\" to \"5xx\", a status such as \"403\", \"grpc-1\" to \"grpc-16\"";

    /// An inner layer has denied the request. It is always among them.
    const DENIED: &str = "denied";
    /// The inner service or the function of a call has returned an error.
    const ERROR: &str = "error";

    /// Those of a list with at least one.
    pub(crate) fn parse<'a>(list: impl IntoIterator<Item = &'a str>) -> Result<Self, RuleError> {
        let mut outcomes: Vec<Box<str>> = list.into_iter().map(Into::into).collect();
        if outcomes.is_empty() {
            return Err(RuleError::NoOutcomes);
        }
        if let Some(text) = outcomes.iter().find(|text| !is_outcome(text.as_bytes())) {
            return Err(RuleError::NoOutcome(text.to_string()));
        }
        outcomes.retain(|text| **text != *Self::DENIED);
        outcomes.sort_by_cached_key(|text| (text.len(), !text.ends_with("xx"), text.clone()));
        outcomes.dedup();
        Ok(Self(outcomes))
    }

    /// Those of a list with at least one, all of which are statuses of refusals.
    pub(crate) fn statuses<'a>(list: impl IntoIterator<Item = &'a str>) -> Result<Self, RuleError> {
        let list: Vec<_> = list.into_iter().collect();
        let others = [Self::DENIED, Self::ERROR, "grpc-0"];
        let is_other = |text: &str| others.contains(&text) || text.starts_with(['1', '2']);
        let is_status = |text: &str| is_outcome(text.as_bytes()) && !is_other(text);
        match list.iter().find(|text| !is_status(text)) {
            Some(text) => Err(RuleError::NoStatus(format!("{text:?}"))),
            None if list.is_empty() => Err(RuleError::NoStatus("an empty list".to_owned())),
            None => Self::parse(list),
        }
    }

    /// Those of a lock-out, of which there may be none.
    pub(super) fn of_lockout<'a>(
        list: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, RuleError> {
        let list: Vec<_> = list.into_iter().collect();
        match &list[..] {
            [] => Ok(Self(Vec::new())),
            list if list.contains(&Self::DENIED) => {
                Err(RuleError::Lockout("what is denied is no failure"))
            }
            _ => Self::parse(list),
        }
    }

    /// Whether some outcome is among both.
    pub(super) fn overlap(&self, other: &Self) -> bool {
        let mut statuses = (100..600).filter_map(|status| StatusCode::from_u16(status).ok());
        let mut grpc = (0..=16_u8).map(|code| code.to_string());
        statuses.any(|it| self.contain_http(it) && other.contain_http(it))
            || grpc.any(|it| {
                [self, other]
                    .iter()
                    .all(|all| all.contain_grpc(it.as_bytes()))
            })
            || self.contain_error() && other.contain_error()
    }

    /// Whether an answer has one of them.
    pub(crate) fn contain(&self, answer: Statuses<'_>) -> bool {
        let http = answer.http();
        http.is_some_and(|it| self.contain_http(it))
            || answer.grpc().any(|it| self.contain_grpc(it))
    }

    /// Whether an answer has one of them, of failures: a 200 without a status of gRPC in its head
    /// is a 200, whatever its content type, which a handler may repeat as the client has said it.
    pub(crate) fn contain_failure(&self, answer: Statuses<'_>) -> bool {
        self.contain(answer) || answer.lack_grpc() && self.contain_http(answer.http)
    }

    /// Whether a status of HTTP is among them.
    fn contain_http(&self, status: StatusCode) -> bool {
        let is_its = |text: &str| match text.strip_suffix("xx") {
            Some(class) => status.as_str().starts_with(class),
            None => status.as_str() == text,
        };
        self.0.iter().any(|text| is_its(text))
    }

    /// Whether the value of a `grpc-status` is among them.
    fn contain_grpc(&self, status: &[u8]) -> bool {
        let mut grpc = self.0.iter().filter_map(|text| text.strip_prefix("grpc-"));
        grpc.any(|text| text.as_bytes() == status)
    }

    /// Whether there is a status of gRPC among them.
    pub(crate) fn have_grpc(&self) -> bool {
        self.0.iter().any(|text| text.starts_with("grpc-"))
    }

    /// Whether an error is among them, in place of a response.
    pub(crate) fn contain_error(&self) -> bool {
        self.0.iter().any(|text| **text == *Self::ERROR)
    }

    /// Whether there is a status of a response among them.
    pub(crate) fn have_status(&self) -> bool {
        self.0.iter().any(|text| **text != *Self::ERROR)
    }

    /// What [`parse`](Self::parse) makes these of: classes, statuses, gRPC statuses.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let denied = self.0.is_empty().then_some(Self::DENIED);
        let texts = self.0.iter().map(|text| &**text).chain(denied);
        texts.map(ToOwned::to_owned)
    }
}

/// The field with the status of a gRPC answer.
pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The statuses of an answer, one or two. The answer alone says which they are: by its request the
/// client would choose what counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statuses<'a> {
    http: StatusCode,
    headers: &'a HeaderMap,
}

impl<'a> Statuses<'a> {
    /// Those of an answer with this status, and these fields in its head or its trailers.
    pub(crate) const fn new(http: StatusCode, headers: &'a HeaderMap) -> Self {
        Self { http, headers }
    }

    /// That of HTTP. A 200 is none where gRPC has failed, or may fail later.
    fn http(self) -> Option<StatusCode> {
        let is_one = self.http != StatusCode::OK || self.grpc().all(|it| it == b"0");
        (is_one && !self.lack_grpc()).then_some(self.http)
    }

    /// Those of gRPC.
    pub(crate) fn grpc(self) -> impl Iterator<Item = &'a [u8]> {
        let lines = self.headers.get_all(GRPC_STATUS).into_iter();
        lines.map(HeaderValue::as_bytes)
    }

    /// Whether it is a 200 of gRPC whose status is behind its head: in the trailers, or as gRPC-Web
    /// has it, in the body.
    pub(crate) fn lack_grpc(self) -> bool {
        let is_silent = self.http == StatusCode::OK && self.grpc().next().is_none();
        is_silent && self.are_of("application/grpc")
    }

    /// Whether the content type of the answer begins so.
    pub(crate) fn are_of(self, prefix: &str) -> bool {
        let content_type = self.headers.get(CONTENT_TYPE);
        let start = content_type.and_then(|it| it.as_bytes().get(..prefix.len()));
        start.is_some_and(|it| it.eq_ignore_ascii_case(prefix.as_bytes()))
    }
}

/// A class or a status of HTTP, a status of gRPC without leading zeros, an error, or a denial.
fn is_outcome(text: &[u8]) -> bool {
    match text {
        [b'1'..=b'5', b'x', b'x'] | [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => true,
        [b'g', b'r', b'p', b'c', b'-', status @ ..] => {
            matches!(status, [b'0'..=b'9'] | [b'1', b'0'..=b'6'])
        }
        _ => [Outcomes::DENIED, Outcomes::ERROR]
            .map(str::as_bytes)
            .contains(&text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_a_class_a_status_or_a_grpc_status() {
        let outcomes = Outcomes::parse(["2xx", "304", "304", "599", "grpc-0", "grpc-16"]);
        let outcomes = outcomes.expect("valid");
        let http: Vec<u16> = (100..1_000)
            .filter(|status| outcomes.contain_http(StatusCode::from_u16(*status).expect("valid")))
            .collect();
        assert_eq!(http, (200..300).chain([304, 599]).collect::<Vec<_>>());
        let grpc: Vec<u8> = (0..=255)
            .filter(|status| outcomes.contain_grpc(status.to_string().as_bytes()))
            .collect();
        assert_eq!(grpc, [0, 16]);
        let texts = ["2xx", "304", "599", "grpc-0", "grpc-16"];
        assert!(outcomes.texts().eq(texts));
    }

    #[test]
    fn others_are_refused() {
        for wrong in [
            "", "xx", "2x", "20x", "2XX", "0xx", "6xx", "99", "099", "600", "1000", "2xxx", " 2xx",
            "+20", "grpc-", "grpc-17", "grpc-00", "grpc-ok", "GRPC-0", "grpc", "ok",
        ] {
            let refused = Outcomes::parse(["2xx", wrong]);
            assert_eq!(refused, Err(RuleError::NoOutcome(wrong.to_owned())));
        }
        assert_eq!(Outcomes::parse([]), Err(RuleError::NoOutcomes));
    }
}
