//! How a text becomes rules, in three steps. The first mistake ends it.
//!
//! - The parser reads TOML into a table whose keys and values know their places in the text.
//! - Each table of it is read by its names: every value gets its type, what depends on several
//!   values is checked, and what is not known is refused.
//! - A mistake names its key and its line: see [`ConfigError`].

use std::fs;
use std::path::Path;
use std::sync::Arc;

use http::Method;
use toml::de::{DeTable, DeValue};

use super::config_error::ConfigError;
use super::key_names::{client_ip, networks};
use super::rule_table::{answers, rule};
use super::table::Value;
use crate::rule::{AnswerSettings, Exemptions, FileSwitches, Rules};

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

    /// The rules of a file, and its text.
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
        if rules.is_enabled() && rules.len() == 0 {
            return Err(ConfigError::no_rules(path));
        }
        Ok(rules)
    }

    /// Reads the rules from a TOML text. [`config`](crate::config) describes it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the text has a mistake. The error names the line, the key and what was
    /// expected.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let (file, mistakes) = DeTable::parse_recoverable(text);
        let file = DeValue::Table(file.into_inner());
        let file = Value::file(text, &file);
        match mistakes.first() {
            Some(mistake) => Err(file.not_toml(mistake)),
            None => rules(&file),
        }
    }
}

/// The rules of a whole file.
fn rules(file: &Value<'_>) -> Result<Rules, ConfigError> {
    let first = "enabled shadow prefix client-ip exempt close-denied-uploads";
    let known = [&[first][..], &AnswerSettings::NAMES, &["rules"]].concat();
    file.only("a table", &known)?;
    let is_enabled = file.read("enabled", Value::boolean)?.unwrap_or(true);
    let prefix = file.read("prefix", |prefix| prefix.text("a text", Some))?;
    let prefix: Option<Arc<str>> = prefix.map(Into::into);
    let is_on = |key| Ok(file.read(key, Value::boolean)?.unwrap_or(false));
    let mut switches = FileSwitches {
        is_shadow: is_on("shadow")?,
        closes_uploads: is_on("close-denied-uploads")?,
        exemptions: file.read("exempt", exemptions)?.unwrap_or_default(),
        answers: answers(file)?,
    };
    switches.exemptions.client_ip = file.read("client-ip", client_ip)?;
    let mut rules = Rules::of_file(switches.clone()).enabled(is_enabled);
    let Some(tables) = file.get("rules") else {
        return Ok(rules);
    };
    let mut is_client_ip_read = switches.exemptions.needs_address();
    for (path, table) in tables.entries("tables of rules: [rules.<path>]")? {
        let (mut rule, reads_client_ip) = rule(path, &table, &switches)?;
        is_client_ip_read |= reads_client_ip;
        if let Some(prefix) = &prefix {
            rule = rule.with_prefix(Arc::clone(prefix));
        }
        rules.insert(rule);
        if !table.read("enabled", Value::boolean)?.unwrap_or(true) {
            rules.disable(path);
        }
    }
    if !is_client_ip_read && rules.len() > 0 {
        file.without("client-ip", NO_READER)?;
    }
    Ok(rules)
}

const NO_READER: &str = "no rule reads it: each has another key, or a client-ip of its own";

/// The table `exempt` of a file or of a rule.
pub(super) fn exemptions(table: &Value<'_>) -> Result<Exemptions, ConfigError> {
    table.only("a table", &["paths methods networks"])?;
    let exemptions = Exemptions {
        paths: table.read("paths", paths)?.unwrap_or_default(),
        methods: table.read("methods", methods)?.unwrap_or_default(),
        networks: table.read("networks", networks)?.unwrap_or_default(),
        client_ip: None,
    };
    if exemptions.is_empty() {
        return Err(table.mistake("nothing is exempt, expected paths, methods or networks"));
    }
    Ok(exemptions)
}

/// Paths that requests have: clients escape what is no part of a URL, and resolve `..` themselves.
fn paths(value: &Value<'_>) -> Result<Vec<Box<str>>, ConfigError> {
    let expected = "a whole path as clients send it, such as \"/healthz\" or \"/caf%C3%A9\", \
         without \"*\", \"{\", \"?\", \"#\" and \"..\"";
    value.texts("a list of paths", expected, |path| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"*{}?#\"<>\\^`".contains(&byte);
        let is_escape = |it: &str| it.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
        let has_dots = path.split('/').any(|it| it == "." || it == "..");
        let is_path = path.starts_with('/') && path.bytes().all(is_plain) && !has_dots;
        (is_path && path.split('%').skip(1).all(is_escape)).then(|| path.into())
    })
}

/// Methods, which are written in capitals. HTTP allows other characters, as in `*` and `GET|POST`:
/// a file with these means something else.
fn methods(value: &Value<'_>) -> Result<Vec<Method>, ConfigError> {
    let expected = "a method in capitals such as \"OPTIONS\"";
    value.texts("a list of methods", expected, |name| {
        let is_plain =
            |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-';
        let is_method = name.bytes().all(is_plain);
        let method = Method::from_bytes(name.as_bytes()).ok();
        method.filter(|_| is_method)
    })
}
