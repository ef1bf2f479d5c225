use std::borrow::Cow;
use std::time::Duration;

use super::shorten;
use super::text::FromText;

impl FromText for Duration {
    fn expected() -> Cow<'static, str> {
        "a duration such as \"10s\", \"500ms\" or \"1h 30m\"".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let terms = Terms(text);
        let sum = terms.map(|term| parse_term(text, term));
        // A sum that overflows is refused later, as a window that is too long.
        let sum = sum.reduce(|sum, term| Ok(sum?.saturating_add(term?)));
        sum.unwrap_or_else(|| parse_term(text, text))
    }
}

/// One term of the text `text`, which an error repeats.
fn parse_term(text: &str, term: &str) -> Result<Duration, String> {
    humantime::parse_duration(term).map_err(|error| {
        let text = shorten::value(text);
        format!("\"{text}\" is not a duration ({error})")
    })
}

/// The terms of a sum such as `1h 30m`, each a number with its unit.
///
/// The terms are parsed one by one and added here, because the parser panics on a sum such as
/// `18446744073709551615s 1000ms`.
struct Terms<'a>(&'a str);

impl<'a> Iterator for Terms<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0;
        if rest.trim().is_empty() {
            return None;
        }
        let unit = rest.find(char::is_alphabetic).unwrap_or(rest.len());
        let next = rest[unit..].find(|char: char| char.is_ascii_digit());
        let end = next.map_or(rest.len(), |next| unit + next);
        self.0 = &rest[end..];
        Some(rest[..end].trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_the_sum_of_its_terms() {
        let millis = |text| Duration::from_text(text).map(|sum| sum.as_millis());
        assert_eq!(millis("1h 30m"), Ok(5_400_000));
        assert_eq!(millis("1h30m 1 s500ms"), Ok(5_401_500));
        assert_eq!(millis(" 1 0 s "), Ok(10_000));
        assert_eq!(millis("1.5s 1ms"), Ok(1_501));
        assert_eq!(millis("2000µs"), Ok(2));
        assert!(millis("").is_err() && millis(" ").is_err());
        assert!(millis("1h 30").is_err() && millis("h").is_err() && millis("1m m").is_err());
    }

    #[test]
    fn a_sum_that_overflows_is_the_longest_duration() {
        for text in [
            "18446744073709551615s 1000ms",
            "18446744073709551615s 1s",
            "18446744073709551615s 500ms 500ms",
            "18446744073709551615s 999999999ns 1ns",
        ] {
            assert_eq!(Duration::from_text(text), Ok(Duration::MAX));
        }
    }
}
