//! Which outcomes of a request give its charge back.

use std::sync::Arc;

use http::StatusCode;

use super::rule::{Rule, RuleError};

impl Rule {
    /// Gives a request's charge back when its response has one of these outcomes: a class of HTTP
    /// statuses such as `"2xx"`, a status such as `"304"`, or a gRPC status such as `"grpc-0"`. So
    /// only failed logins count, for example. Default: nothing is given back.
    ///
    /// A request is charged first, as ever, and given back when the head of its response is there:
    /// while five logins of five allowed ones are in progress, a sixth is denied, also if all five
    /// are good. A request stays charged if it is dropped before that, if the inner service ends
    /// with an error, and if an inner layer of this crate answered in the place of the handler,
    /// with a denial or a failure. The fields of a response say what was left before its own charge
    /// is given back, and the retry-after of a denial knows of no charge that will be. A shadow
    /// rule and a [candidate](Self::with_shadow) are given back alike.
    ///
    /// A response to a [gRPC request](crate::callback::is_grpc) is HTTP 200 whatever happened, so
    /// there only gRPC statuses apply, and only to a field `grpc-status` in the head. Most answers
    /// have it in their trailers, which come too late: that is a
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
        mut self,
        outcomes: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, RuleError> {
        self.refund_on = Some(Arc::new(Outcomes::parse(outcomes)?));
        Ok(self.remade())
    }

    /// The outcomes for which a charge is given back, as [`with_refund_on`](Self::with_refund_on)
    /// takes them: classes, statuses, gRPC statuses.
    pub fn refund_on(&self) -> impl Iterator<Item = String> {
        self.outcomes().into_iter().flat_map(Outcomes::texts)
    }

    /// The same, to be compared with.
    pub(crate) fn outcomes(&self) -> Option<&Outcomes> {
        self.refund_on.as_deref()
    }
}

/// The outcomes for which a rule gives a request's charge back: see
/// [`Rule::with_refund_on`](crate::Rule::with_refund_on).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcomes {
    /// A bit for each class of HTTP statuses: bit 2 for `2xx`.
    classes: u8,
    statuses: Vec<StatusCode>,
    /// A bit for each gRPC status.
    grpc: u32,
}

impl Outcomes {
    /// What an outcome may be, for messages.
    pub(crate) const EXPECTED: &str =
        "\"1xx\" to \"5xx\", a status such as \"304\", or \"grpc-0\" to \"grpc-16\"";

    /// Those of a list with at least one.
    pub(crate) fn parse<'a>(list: impl IntoIterator<Item = &'a str>) -> Result<Self, RuleError> {
        let mut outcomes = Self::default();
        for text in list {
            if !outcomes.add(text) {
                return Err(RuleError::NoOutcome(text.to_owned()));
            }
        }
        match outcomes == Self::default() {
            true => Err(RuleError::NoOutcomes),
            false => Ok(outcomes),
        }
    }

    /// Adds an outcome; false if the text is none.
    fn add(&mut self, text: &str) -> bool {
        match text.as_bytes() {
            [class @ b'1'..=b'5', b'x', b'x'] => self.classes |= 1 << (class - b'0'),
            [b'1'..=b'5', _, _] => match text.parse() {
                Ok(status) if !self.statuses.contains(&status) => self.statuses.push(status),
                Ok(_) => {}
                Err(_) => return false,
            },
            [b'g', b'r', b'p', b'c', b'-', status @ ..] => match grpc_status(status) {
                Some(status) => self.grpc |= 1 << status,
                None => return false,
            },
            _ => return false,
        }
        true
    }

    /// Whether the status of a response to an HTTP request is among them.
    pub(crate) fn contain_http(&self, status: StatusCode) -> bool {
        self.classes
            & 1_u8
                .checked_shl(u32::from(status.as_u16() / 100))
                .unwrap_or(0)
            != 0
            || self.statuses.contains(&status)
    }

    /// Whether the value of a `grpc-status` is among them.
    pub(crate) fn contain_grpc(&self, status: &[u8]) -> bool {
        grpc_status(status).is_some_and(|status| self.grpc & 1 << status != 0)
    }

    /// What [`parse`](Self::parse) makes these of: classes, statuses, gRPC statuses.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let classes = (1..=5).filter(|class| self.classes & 1 << class != 0);
        let classes = classes.map(|class| format!("{class}xx"));
        let statuses = self
            .statuses
            .iter()
            .map(|status| status.as_str().to_owned());
        let grpc = (0..=16).filter(|status| self.grpc & 1 << status != 0);
        let grpc = grpc.map(|status| format!("grpc-{status}"));
        classes.chain(statuses).chain(grpc)
    }
}

/// A gRPC status: 0 to 16, without leading zeros.
fn grpc_status(text: &[u8]) -> Option<u8> {
    match *text {
        [digit @ b'0'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'6'] => Some(10 + digit - b'0'),
        _ => None,
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
