//! The values of a file, each with its key and its place, so that an error can name both.

use std::num::IntErrorKind;
use std::ops::{Range, RangeInclusive};

use toml::de::{DeTable, DeValue};

use super::config_error::{ConfigError, shorten_value};

/// A value of a file, such as a table.
#[derive(Clone)]
pub(super) struct Value<'a> {
    /// The whole file.
    text: &'a str,
    /// With all tables around it, such as `rules.getId.window`.
    key: String,
    span: Range<usize>,
    value: &'a DeValue<'a>,
}

impl<'a> Value<'a> {
    /// The whole file.
    pub(super) fn file(text: &'a str, value: &'a DeValue<'a>) -> Self {
        let (key, span) = (String::new(), 0..0);
        Self {
            text,
            key,
            span,
            value,
        }
    }

    fn within(&self, name: &str, span: Range<usize>, value: &'a DeValue<'a>) -> Self {
        let name = quoted(name);
        let key = if self.key.is_empty() {
            name
        } else {
            format!("{}.{name}", self.key)
        };
        Self {
            key,
            span,
            value,
            ..*self
        }
    }

    /// The value of this key, if this is a table that has the key.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let value = self.value.as_table()?.get(name)?;
        Some(self.within(name, value.span(), value.get_ref()))
    }

    /// The value of the first of these keys that this table has. They have blanks between them.
    pub(super) fn get_any(&self, names: &str) -> Option<Self> {
        names.split(' ').find_map(|name| self.get(name))
    }

    /// What `read` makes of the value of this key, if the table has the key.
    pub(super) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Self) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        self.get(name).map(|value| read(&value)).transpose()
    }

    /// What `set` makes of `old` and the value of this key; without the key, `old`.
    pub(super) fn set<T>(
        &self,
        name: &str,
        old: T,
        set: impl FnOnce(T, &Self) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        match self.get(name) {
            Some(value) => set(old, &value),
            None => Ok(old),
        }
    }

    /// All keys of a table and their values, in alphabetical order. The place of each is that of
    /// its key.
    pub(super) fn entries(
        &self,
        expected: &str,
    ) -> Result<impl Iterator<Item = (&'a str, Self)>, ConfigError> {
        let entries = self.value.as_table().ok_or_else(|| self.not(expected))?;
        Ok(entries.iter().map(|(name, value)| {
            let (span, name) = (name.span(), &**name.get_ref());
            (name, self.within(name, span, value.get_ref()))
        }))
    }

    /// Refuses what is no table, and keys that are not among these, which have blanks between them.
    pub(super) fn only(&self, expected: &str, known: &[&str]) -> Result<(), ConfigError> {
        let known: Vec<_> = known.iter().flat_map(|keys| keys.split(' ')).collect();
        let mut entries = self.entries(expected)?;
        match entries.find(|(name, _)| !known.contains(name)) {
            Some((name, value)) => {
                let (name, known) = (shorten_value(name), known.join("`, `"));
                let message = format!("unknown field `{name}`, expected one of `{known}`");
                Err(value.mistake(message))
            }
            None => Ok(()),
        }
    }

    /// Refuses these keys, which have blanks between them.
    pub(super) fn without(&self, names: &str, message: impl ToString) -> Result<(), ConfigError> {
        match self.get_any(names) {
            Some(value) => Err(value.mistake(message)),
            None => Ok(()),
        }
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// The values of a list; `None` if this is not one.
    pub(super) fn list(&self) -> Option<impl ExactSizeIterator<Item = Self>> {
        let items = self.value.as_array()?.iter();
        Some(items.map(|item| Self {
            key: self.key.clone(),
            span: item.span(),
            value: item.get_ref(),
            ..*self
        }))
    }

    pub(super) fn boolean(&self) -> Result<bool, ConfigError> {
        let value = self.value.as_bool();
        value.ok_or_else(|| self.not("true or false"))
    }

    /// A whole number. One of more than 64 bits is the largest, which every setting refuses as too
    /// large, or takes as without a bound.
    pub(super) fn number(&self) -> Result<u64, ConfigError> {
        let wrong = || self.not("a whole number, 0 or more");
        let number = self.value.as_integer().ok_or_else(wrong)?;
        match u64::from_str_radix(number.as_str(), number.radix()) {
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(u64::MAX),
            number => number.map_err(|_| wrong()),
        }
    }

    /// A whole number in this range; `message` says which ones are.
    pub(super) fn number_in<T: TryFrom<u64> + PartialOrd>(
        &self,
        range: RangeInclusive<T>,
        message: impl ToString,
    ) -> Result<T, ConfigError> {
        let number = T::try_from(self.number()?).ok();
        let number = number.filter(|number| range.contains(number));
        number.ok_or_else(|| self.mistake(message))
    }

    /// What `parse` makes of a string; `expected` says what it takes.
    pub(super) fn text<T>(
        &self,
        expected: &str,
        parse: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let parsed = self.value.as_str().and_then(parse);
        parsed.ok_or_else(|| self.not(expected))
    }

    /// What `parse` makes of each string of a list.
    pub(super) fn texts<T>(
        &self,
        expected_list: &str,
        expected: &str,
        parse: impl Fn(&'a str) -> Option<T>,
    ) -> Result<Vec<T>, ConfigError> {
        let list = self.list().ok_or_else(|| self.not(expected_list))?;
        list.map(|item| item.text(expected, &parse)).collect()
    }

    /// The mistake that this file is not TOML.
    pub(super) fn not_toml(&self, error: &toml::de::Error) -> ConfigError {
        let key = error.span().and_then(|span| self.key_at(span.start));
        ConfigError::syntax(self.text, error, key)
    }

    /// The key of the innermost value with this byte of the file.
    fn key_at(&self, at: usize) -> Option<String> {
        let names = self.value.as_table().into_iter().flat_map(DeTable::keys);
        let of_table = names.filter_map(|name| self.get(name.get_ref()));
        let of_list = self.list().into_iter().flatten();
        let inner = of_table.chain(of_list).find_map(|value| value.key_at(at));
        let is_here = (self.span.start..=self.span.end).contains(&at) && !self.key.is_empty();
        inner.or_else(|| is_here.then(|| self.key.clone()))
    }

    /// The mistake that the value is not what is expected.
    pub(super) fn not(&self, expected: &str) -> ConfigError {
        let found = match self.value {
            DeValue::String(text) => format!("\"{}\"", shorten_value(text)),
            DeValue::Integer(number) => shorten_value(&number.to_string()),
            DeValue::Float(number) => shorten_value(number.as_str()),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(time) => time.to_string(),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        self.mistake(format!("found {found}, expected {expected}"))
    }

    /// The value of a result. Its error is a mistake of this value.
    pub(super) fn check<T>(&self, result: Result<T, impl ToString>) -> Result<T, ConfigError> {
        result.map_err(|error| self.mistake(error))
    }

    pub(super) fn mistake(&self, message: impl ToString) -> ConfigError {
        ConfigError::mistake(self.text, &self.key, self.span.start, &message.to_string())
    }

    /// A mistake in the value of this key; without such a value, in the table.
    pub(super) fn mistake_in(&self, name: &str, message: impl ToString) -> ConfigError {
        let value = self.get(name);
        value.as_ref().unwrap_or(self).mistake(message)
    }
}

/// A name as a dotted key has to contain it: quoted unless it is a bare key.
fn quoted(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !name.is_empty() && name.bytes().all(bare) {
        name.to_owned()
    } else {
        format!("{name:?}")
    }
}
