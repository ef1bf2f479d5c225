use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

use super::shorten;

/// A whole number, 0 or more. Its error message says so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number(pub(super) u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor).map(Self)
    }
}

/// Reads every number, so that the message for a wrong one is always the same.
struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, 0 or more")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(number), &self);
        number.try_into().map_err(wrong)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<u64, E> {
        Err(E::custom(format!("{number} is too large")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        Err(E::invalid_type(
            Unexpected::Str(&shorten::value(text)),
            &self,
        ))
    }
}
