use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{duplicate_key, location, shorten};

/// The most characters of a key in a message.
const MAX_KEY: usize = 200;

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
#[derive(Debug)]
pub struct ConfigError {
    /// `None` for a text that was not read from a file.
    file: Option<PathBuf>,
    /// Counted from 1. `None` if the file cannot be read, or lacks something.
    line: Option<usize>,
    /// With all tables around it. `None` outside of keys and values.
    key: Option<String>,
    /// The mistake and what was expected. Long values are shortened.
    message: String,
    /// Why the file cannot be read.
    source: Option<io::Error>,
}

impl ConfigError {
    /// A file that cannot be read.
    pub(crate) fn unreadable(file: &Path, error: io::Error) -> Self {
        Self {
            file: Some(file.to_owned()),
            line: None,
            key: None,
            message: format!("cannot be read: {error}"),
            source: Some(error),
        }
    }

    /// A file without rules, which replaces no others.
    pub(super) fn no_rules(file: &Path) -> Self {
        let message = "no rules, expected [rules.<path>], or enabled = false if nothing is to be \
             limited";
        Self {
            file: Some(file.to_owned()),
            line: None,
            key: None,
            message: message.to_owned(),
            source: None,
        }
    }

    /// A mistake at these bytes of the text, or without a span on the line where the parser gave
    /// up.
    pub(super) fn at(text: &str, span: Option<Range<usize>>, message: &str) -> Self {
        let key = span.as_ref().and_then(|span| location::key_at(text, span));
        let line = match span {
            Some(span) => location::line_at(text, span.start),
            None => location::line_of_recursion_limit(text),
        };
        Self {
            file: None,
            line: Some(line),
            key,
            message: shorten::message(message),
            source: None,
        }
    }

    /// A text that is not TOML.
    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let (span, message) = (error.span(), error.message());
        match &span {
            Some(duplicate) if message == "duplicate key" => Self {
                key: duplicate_key::path(text, duplicate),
                ..Self::at(text, span, "duplicate key, expected it only once")
            },
            Some(_) if message.starts_with("invalid unquoted key") => {
                let message = format!("{message}, or quotes as in [rules.\"/login\"]");
                Self::at(text, span, &message)
            }
            _ => Self::at(text, span, message),
        }
    }

    /// The same error, in this file.
    pub(super) fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// The file, if the text was read from one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The line, counted from 1. `None` if the file cannot be read, or was
    /// [reloaded](crate::Limits::reload) and has no rules.
    #[must_use]
    pub const fn line(&self) -> Option<usize> {
        self.line
    }

    /// The key with all tables around it, such as `rules.getId.window`. `None` if the mistake is
    /// not in the name or value of a key. Messages show at most 200 characters of it.
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
            write!(f, "{}: ", shorten::middle(key, MAX_KEY))?;
        }
        f.write_str(&self.message)
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
