use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use http::HeaderName;
use ipnet::IpNet;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::shorten;
use crate::algorithm::Algorithm;
use crate::rule::OnError;

/// A value that a file contains as a string, such as a duration or the name of an algorithm.
///
/// It is converted while the file is read, so that its error has the place of the string. The error
/// says what is wrong and what was expected: `unknown unit "FORTNIGHTS", expected "MILLISECONDS",
/// "SECONDS", "MINUTES", "HOURS" or "DAYS"`.
#[derive(Debug, Clone)]
pub(super) struct Text<T>(pub(super) T);

/// A type whose values a file contains as strings.
pub(super) trait FromText: Sized {
    /// What messages say after the word "expected".
    fn expected() -> Cow<'static, str>;

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

/// Reads a string and converts it.
struct TextVisitor<T>(PhantomData<T>);

impl<T: FromText> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::expected())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        parse(text)
    }
}

/// The value, or an error that also says what was expected.
pub(super) fn parse<T: FromText, E: Error>(text: &str) -> Result<T, E> {
    T::from_text(text).map_err(|wrong| E::custom(format!("{wrong}, expected {}", T::expected())))
}

impl FromText for OnError {
    fn expected() -> Cow<'static, str> {
        "\"respond\", \"proceed\" or \"fallback\"".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "respond" => Ok(Self::Respond),
            "proceed" => Ok(Self::Proceed),
            "fallback" => Ok(Self::Fallback),
            _ => Err(format!("unknown choice \"{}\"", shorten::value(text))),
        }
    }
}

impl FromText for Algorithm {
    fn expected() -> Cow<'static, str> {
        either(Algorithm::ALL).into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.name() == text);
        known.ok_or_else(|| format!("unknown algorithm \"{}\"", shorten::value(text)))
    }
}

/// Their names in quotes, with "or" before the last.
pub(super) fn either(algorithms: impl IntoIterator<Item = Algorithm>) -> String {
    let quoted = algorithms
        .into_iter()
        .map(|known| format!("\"{}\"", known.name()));
    let quoted: Vec<_> = quoted.collect();
    match &quoted[..] {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

impl FromText for IpNet {
    fn expected() -> Cow<'static, str> {
        "a network such as \"10.0.0.0/8\", or an address".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let address = || text.parse().map(|address: IpAddr| Self::from(address));
        let network = text.parse().or_else(|_| address());
        network.map_err(|_| format!("\"{}\" is not a network", shorten::value(text)))
    }
}

impl FromText for HeaderName {
    fn expected() -> Cow<'static, str> {
        "the name of a header field".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let name = text.to_ascii_lowercase().parse();
        name.map_err(|_| format!("\"{}\" cannot be one", shorten::value(text)))
    }
}
