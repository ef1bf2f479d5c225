//! How a text becomes rules, in four steps. The first mistake ends it.
//!
//! - The parser reads TOML into a table whose keys and values know their places in the text.
//! - [`nested_rules`] refuses a path with dots that was written without quotes.
//! - Serde converts the table into a [`File`]. Each value has its type from here on, and keeps its
//!   place as [`toml::Spanned`] where a later check may refuse it.
//! - [`File::into_rules`] checks what depends on several values, and makes the rules.
//!
//! Every mistake has a place in the text, as a range of bytes. [`ConfigError`] finds its line and
//! its key only then, so that a text without mistakes costs nothing for it.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, Deserializer};

use super::config_error::ConfigError;
use super::file::File;
use super::mistake::Mistake;
use super::nested_rules;
use crate::rule::Rules;

impl Rules {
    /// Reads the rules from a TOML file. [`config`](crate::config) describes the file.
    ///
    /// ```no_run
    /// use tidegate::Rules;
    ///
    /// # fn main() -> Result<(), tidegate::config::ConfigError> {
    /// let rules = Rules::from_file("limits.toml")?;
    /// # let _ = rules;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file cannot be read or has a mistake. For a mistake the error names
    /// the file, the line, the key and what was expected.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::from_file_with_text(path.as_ref()).map(|(rules, _)| rules)
    }

    /// The same, and the text that the file contains.
    pub(crate) fn from_file_with_text(path: &Path) -> Result<(Self, String), ConfigError> {
        let text =
            fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, error))?;
        let rules = Self::from_toml(&text).map_err(|error| error.in_file(path))?;
        Ok((rules, text))
    }

    /// The rules of a file's new text, which are to replace others. No rules at all are a mistake,
    /// as an empty file mostly is, unless the text says that nothing is to be limited.
    pub(crate) fn from_new_text(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let rules = Self::from_toml(text).map_err(|error| error.in_file(path))?;
        match rules.is_enabled() && rules.len() == 0 {
            true => Err(ConfigError::no_rules(path)),
            false => Ok(rules),
        }
    }

    /// Reads the rules from a TOML text. [`config`](crate::config) describes it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the text has a mistake. The error names the line, the key and what was
    /// expected.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let table = DeTable::parse(text).map_err(|error| ConfigError::syntax(text, &error))?;
        let located =
            |mistake: Mistake| ConfigError::at(text, Some(mistake.span), &mistake.message);
        nested_rules::refuse(table.get_ref()).map_err(located)?;
        let file = File::deserialize(Deserializer::from(table))
            .map_err(|error| ConfigError::at(text, error.span(), error.message()))?;
        file.into_rules().map_err(located)
    }
}
