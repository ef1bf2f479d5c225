//! Which outcomes of a request give its charge back.

use http::StatusCode;

use super::RuleError;

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
