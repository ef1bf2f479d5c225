use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The most characters of a key in a message.
const MAX_KEY: usize = 200;
/// The most characters of a message behind the key.
const MAX_MESSAGE: usize = 600;

/// A mistake in a configuration, and where it is.
///
/// Its message names the file, the line, the key and what was expected: `limits.toml:7:
/// rules.getId.window: the window is zero, expected at least 1 ms`. Messages are one line of
/// bounded length, whatever values the file has.
///
/// ```
/// use tidegate::Rules;
///
/// let error = Rules::from_toml("[rules.getId]\nmax-count = 5\nwindow = \"0s\"").unwrap_err();
/// assert_eq!(error.line(), Some(3));
/// assert_eq!(error.key(), Some("rules.getId.window"));
/// assert_eq!(error.file(), None);
/// ```
pub struct ConfigError {
    /// `None` for a text that was not read from a file.
    file: Option<PathBuf>,
    /// Counted from 1. `None` if the file cannot be read, lacks something, or nests tables too
    /// deeply.
    line: Option<usize>,
    /// With all tables around it, unless it is a key that is there twice. `None` outside of
    /// keys and values.
    key: Option<String>,
    /// The mistake and what was expected. Long values are shortened.
    message: String,
    /// Why the file cannot be read.
    source: Option<io::Error>,
}

crate::error::debug_as_message!(ConfigError);

impl ConfigError {
    /// A file that cannot be read.
    pub(crate) fn unreadable(file: &Path, error: io::Error) -> Self {
        let mut unreadable = Self::new(&format!("cannot be read: {error}"), None);
        unreadable.source = Some(error);
        unreadable.in_file(file)
    }

    /// A file without rules, which replaces no others.
    pub(super) fn no_rules(file: &Path) -> Self {
        let message = "no rules, expected [rules.<path>], or enabled = false if nothing is to be \
             limited";
        Self::new(message, None).in_file(file)
    }

    /// A mistake at this byte of a text: lowercase, and without a full stop.
    pub(super) fn mistake(text: &str, key: &str, at: usize, message: &str) -> Self {
        Self {
            key: Some(key.to_owned()).filter(|key| !key.is_empty()),
            ..Self::new(message, Some(line_at(text, at)))
        }
    }

    /// A text that is not TOML, with the key of the value that is wrong, if one is. The parser names
    /// no place for tables that are nested too deeply.
    pub(super) fn syntax(text: &str, error: &toml::de::Error, key: Option<String>) -> Self {
        let line = error.span().map(|span| line_at(text, span.start));
        let wrong = error.span().and_then(|span| text.get(span));
        let (key, message) = match error.message() {
            "duplicate key" => {
                let message = "duplicate key, expected it only once".to_owned();
                (wrong.map(str::to_owned), message)
            }
            message if message.starts_with("invalid unquoted key") => (
                None,
                format!("{message}, or quotes as in [rules.\"/login\"]"),
            ),
            // What the parser says of words without quotes.
            message
                if message.starts_with("invalid boolean")
                    || message.starts_with("string values must be quoted") =>
            {
                let found = match wrong.unwrap_or_default() {
                    "" => "no value".to_owned(),
                    bare => format!("found {}", shorten_value(bare)),
                };
                let expected = "expected a number, true, false, or text in quotes";
                (key, format!("{found}, {expected}"))
            }
            message => (key, message.to_owned()),
        };
        Self {
            key,
            ..Self::new(&message, line)
        }
    }

    fn new(message: &str, line: Option<usize>) -> Self {
        Self {
            file: None,
            line,
            key: None,
            message: shorten_middle(&message.replace('\n', " "), MAX_MESSAGE),
            source: None,
        }
    }

    /// This error, in this file.
    pub(super) fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// The file, if the text was read from one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The line, counted from 1. `None` if the file cannot be read, if it was
    /// [reloaded](crate::Limits::reload) and has no rules, or if its tables are nested too deeply.
    #[must_use]
    pub const fn line(&self) -> Option<usize> {
        self.line
    }

    /// The key with all tables around it, such as `rules.getId.window`; without them for a key that
    /// is there twice. `None` if the mistake is not in the name or value of a key. Messages
    /// show at most 200 characters of it.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        if let Some(key) = &self.key {
            write!(f, "{}: ", shorten_middle(key, MAX_KEY))?;
        }
        f.write_str(&self.message)
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// The line of the byte at this index, counted from 1.
fn line_at(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// The most characters of a value in a message.
const MAX_VALUE: usize = 100;

/// The first 100 characters of a value, on one line: enough to find it, however long the values in
/// a file are.
pub(super) fn shorten_value(text: &str) -> String {
    let beginning = text.chars().take(MAX_VALUE);
    let mut shown: String = beginning.flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_VALUE).is_some() {
        shown.push('…');
    }
    shown
}

/// A text of at most `max` characters. A longer one loses its middle: the beginning of a message
/// says what is wrong, and its end what was expected.
fn shorten_middle(text: &str, max: usize) -> String {
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
        assert_eq!(shorten_value(&of(100)), of(100));
        assert_eq!(shorten_value(&of(101)), of(100) + "…");
        assert_eq!(shorten_value("a\n\u{1b}\"b\""), "a\\n\\u{1b}\\\"b\\\"");
    }

    #[test]
    fn a_long_text_loses_its_middle() {
        assert_eq!(shorten_middle("abcd", 4), "abcd");
        assert_eq!(shorten_middle("abcde", 4), "ab…de");
        assert_eq!(shorten_middle("ääääääää", 6), "äää…äää");
    }
}
