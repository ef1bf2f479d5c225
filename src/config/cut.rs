//! Messages of a bounded length, however long the values in a file are.

/// The most characters of a value that a message repeats.
const MAX_VALUE: usize = 100;
/// No message of ours or of the parser has more characters than this between two quotes, unless
/// it repeats a value.
const MAX_BETWEEN_QUOTES: usize = 200;
/// The most characters of a message.
const MAX_MESSAGE: usize = 600;

/// A value as it is shown in a message: on one line, and cut after 100 characters.
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

/// A message of the parser, on one line, with the values cut that it repeats.
pub(super) fn message(text: &str) -> String {
    let text = text.replace('\n', " ");
    let parts = text.split_inclusive(['"', '`']).map(|part| {
        let end = part.strip_suffix(['"', '`']).map_or(part.len(), str::len);
        let (part, quote) = part.split_at(end);
        match part.chars().count() > MAX_BETWEEN_QUOTES {
            true => value(part) + quote,
            false => [part, quote].concat(),
        }
    });
    // A value may have quotes of its own.
    middle(&parts.collect::<String>(), MAX_MESSAGE)
}

/// A text without its middle where it is longer than `max` characters: the start says what is
/// wrong, and the end what was expected.
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
    fn a_value_is_cut_after_100_characters() {
        let of = |length| "ä".repeat(length);
        assert_eq!(value(&of(100)), of(100));
        assert_eq!(value(&of(101)), of(100) + "…");
        assert_eq!(value("a\n\u{1b}\"b\""), "a\\n\\u{1b}\\\"b\\\"");
    }

    #[test]
    fn a_message_keeps_what_was_expected() {
        let told = |value: &str| message(&format!("invalid type: string \"{value}\", expected 7"));
        assert_eq!(told("a\nb"), "invalid type: string \"a b\", expected 7");
        let cut = format!("invalid type: string \"{}…\", expected 7", "a".repeat(100));
        assert_eq!(told(&"a".repeat(1_000_000)), cut);
        let told = told(&"\"".repeat(1_000_000));
        assert!(told.chars().count() < 700 && told.ends_with("expected 7"));
    }

    #[test]
    fn a_text_is_cut_in_its_middle() {
        assert_eq!(middle("abcd", 4), "abcd");
        assert_eq!(middle("abcde", 4), "ab…de");
        assert_eq!(middle("ääääääää", 6), "äää…äää");
    }
}
