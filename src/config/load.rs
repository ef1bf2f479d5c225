//! How a text becomes rules, in three steps. The first mistake ends it.
//!
//! - The parser reads TOML into a table whose keys and values know their places in the text.
//! - Each table of it is read by its names: every value gets its type, what depends on several
//!   values is checked, and what is not known is refused.
//! - A mistake names its key and its place. [`ConfigError`] adds the line.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::config_error::ConfigError;
use super::rule_table::{Defaults, rule};
use super::table::{Mistake, Value};
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
        let file = DeTable::parse(text).map_err(|error| ConfigError::syntax(text, &error))?;
        let file = DeValue::Table(file.into_inner());
        rules(Value::file(&file)).map_err(|mistake| ConfigError::mistake(text, mistake))
    }
}

/// The rules of a whole file.
fn rules(file: Value<'_>) -> Result<Rules, Mistake> {
    let file = file.table("a table")?;
    file.only(&[
        "enabled",
        "shadow",
        "prefix",
        "client-ip",
        "exempt",
        "rules",
    ])?;
    let is_enabled = file.read("enabled", Value::boolean)?.unwrap_or(true);
    let is_shadow = file.read("shadow", Value::boolean)?.unwrap_or(false);
    let prefix = file.read("prefix", |prefix| prefix.text("a text", Some))?;
    let prefix: Option<Arc<str>> = prefix.map(Into::into);
    let defaults = Defaults::of(&file)?;

    let mut rules = Rules::default().enabled(is_enabled);
    let Some(tables) = file.get("rules") else {
        return Ok(rules);
    };
    for (path, table) in tables.table("tables of rules: [rules.<path>]")?.iter() {
        let table = table.table("a table of a rule")?;
        let mut rule = rule(path, &table, &defaults)?;
        if let Some(prefix) = &prefix {
            rule = rule.with_prefix(Arc::clone(prefix));
        }
        if is_shadow {
            rule = rule.into_shadow();
        }
        rules.insert(rule);
        if !table.read("enabled", Value::boolean)?.unwrap_or(true) {
            rules.disable(path);
        }
    }
    Ok(rules)
}
