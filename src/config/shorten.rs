//! Shortens messages, so that their length is bounded however long the values in a file are.
//!
//! A value keeps its beginning, which is enough to find it. A message keeps its beginning and its
//! end, since it ends with what was expected. A message is always one line.

/// The most characters of a value in a message.
const MAX_VALUE: usize = 100;

/// The first 100 characters of a value, on one line.
pub(super) fn value(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(MAX_VALUE)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(MAX_VALUE).is_some() {
        shown.push('…');
    }
    shown
}

/// A text of at most `max` characters. A longer one loses its middle: the beginning of a message
/// says what is wrong, and its end what was expected.
pub(super) fn middle(text: &str, max: usize) -> String {
    let number = text.chars().count();
    if number <= max {
        return text.to_owned();
    }
    let start = text.chars().take(max / 2);
    let end = text.chars().skip(number - max / 2);
    start.chain(['…']).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shortened_to_100_characters() {
        let of = |length| "ä".repeat(length);
        assert_eq!(value(&of(100)), of(100));
        assert_eq!(value(&of(101)), of(100) + "…");
        assert_eq!(value("a\n\u{1b}\"b\""), "a\\n\\u{1b}\\\"b\\\"");
    }

    #[test]
    fn a_long_text_loses_its_middle() {
        assert_eq!(middle("abcd", 4), "abcd");
        assert_eq!(middle("abcde", 4), "ab…de");
        assert_eq!(middle("ääääääää", 6), "äää…äää");
    }
}
