use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use http::HeaderName;
use ipnet::IpNet;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::cut;
use crate::algorithm::Algorithm;
use crate::rule::OnError;

/// A value that is written as a string, and says what it expects where it cannot be one.
#[derive(Debug, Clone)]
pub(super) struct Text<T>(pub(super) T);

/// What a [`Text`] may hold.
pub(super) trait FromText: Sized {
    /// Follows the word "expected" in messages.
    const EXPECTED: &'static str;

    /// The value, or what is wrong with the text.
    fn from_text(text: &str) -> Result<Self, String>;
}

impl<'de, T: FromText> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_str(TextVisitor(PhantomData))
            .map(Self)
    }
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: FromText> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        parse(text)
    }
}

/// For other visitors that meet such a text.
pub(super) fn parse<T: FromText, E: Error>(text: &str) -> Result<T, E> {
    T::from_text(text).map_err(|wrong| E::custom(format!("{wrong}, expected {}", T::EXPECTED)))
}

/// A unit of time as Java's `TimeUnit` names it, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeUnit(pub(super) u64);

impl FromText for TimeUnit {
    const EXPECTED: &'static str =
        "\"MILLISECONDS\", \"SECONDS\", \"MINUTES\", \"HOURS\" or \"DAYS\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let millis = match text.to_ascii_uppercase().as_str() {
            "MILLISECONDS" => 1,
            "SECONDS" => 1_000,
            "MINUTES" => 60_000,
            "HOURS" => 3_600_000,
            "DAYS" => 86_400_000,
            _ => return Err(format!("unknown unit \"{}\"", cut::value(text))),
        };
        Ok(Self(millis))
    }
}

impl FromText for OnError {
    const EXPECTED: &'static str = "\"respond\", \"proceed\" or \"fallback\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "respond" => Ok(Self::Respond),
            "proceed" => Ok(Self::Proceed),
            "fallback" => Ok(Self::Fallback),
            _ => Err(format!("unknown choice \"{}\"", cut::value(text))),
        }
    }
}

impl FromText for Algorithm {
    const EXPECTED: &'static str =
        "\"sliding-log\", \"sliding-window\", \"gcra\" or \"fixed-window\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.name() == text);
        known.ok_or_else(|| format!("unknown algorithm \"{}\"", cut::value(text)))
    }
}

impl FromText for IpNet {
    const EXPECTED: &'static str = "a network such as \"10.0.0.0/8\", or an address";

    fn from_text(text: &str) -> Result<Self, String> {
        let address = || text.parse().map(|address: IpAddr| Self::from(address));
        let network = text.parse().or_else(|_| address());
        network.map_err(|_| format!("\"{}\" is not a network", cut::value(text)))
    }
}

impl FromText for HeaderName {
    const EXPECTED: &'static str = "the name of a header field";

    fn from_text(text: &str) -> Result<Self, String> {
        let name = text.to_ascii_lowercase().parse();
        name.map_err(|_| format!("\"{}\" cannot be one", cut::value(text)))
    }
}
