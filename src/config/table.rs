//! The tables and values of a file, each with its key and its place, so that a mistake can name
//! both.

use std::num::IntErrorKind;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::config_error::shorten_value;

/// A table of a file.
pub(super) struct Table<'a> {
    at: Value<'a>,
    entries: &'a DeTable<'a>,
}

/// A value of a file.
pub(super) struct Value<'a> {
    /// With all tables around it, such as `rules.getId.window`.
    key: String,
    span: Range<usize>,
    value: &'a DeValue<'a>,
}

/// A mistake in a file.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) key: String,
    /// The first byte in the text.
    pub(super) at: usize,
    /// What is wrong and what was expected: lowercase, and without a full stop.
    pub(super) message: String,
}

impl<'a> Table<'a> {
    /// The value of this key, if the table has the key.
    pub(super) fn get(&self, name: &str) -> Option<Value<'a>> {
        let value = self.entries.get(name)?;
        Some(self.at.within(name, value.span(), value.get_ref()))
    }

    /// What `read` makes of the value of this key, if the table has the key.
    pub(super) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Value<'a>) -> Result<T, Mistake>,
    ) -> Result<Option<T>, Mistake> {
        self.get(name).map(|value| read(&value)).transpose()
    }

    /// What `read` makes of the table of this key, if the table has the key.
    pub(super) fn read_table<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Table<'a>) -> Result<T, Mistake>,
    ) -> Result<Option<T>, Mistake> {
        let table = self.get(name).map(|value| value.table("a table"));
        table.transpose()?.map(|table| read(&table)).transpose()
    }

    /// All keys and their values, in alphabetical order. The place of each is that of its key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        let entries = self.entries.iter();
        entries.map(|(name, value)| {
            let (span, name) = (name.span(), &**name.get_ref());
            (name, self.at.within(name, span, value.get_ref()))
        })
    }

    /// Refuses keys that are not among these.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Mistake> {
        match self.iter().find(|(name, _)| !known.contains(name)) {
            Some((name, value)) => {
                let (name, known) = (shorten_value(name), known.join("`, `"));
                let message = format!("unknown field `{name}`, expected one of `{known}`");
                Err(value.mistake(message))
            }
            None => Ok(()),
        }
    }

    pub(super) fn mistake(&self, message: impl ToString) -> Mistake {
        self.at.mistake(message)
    }
}

impl<'a> Value<'a> {
    /// The whole file.
    pub(super) fn file(value: &'a DeValue<'a>) -> Self {
        let (key, span) = (String::new(), 0..0);
        Self { key, span, value }
    }

    fn within(&self, name: &str, span: Range<usize>, value: &'a DeValue<'a>) -> Self {
        let name = quoted(name);
        let key = match self.key.is_empty() {
            true => name,
            false => format!("{}.{name}", self.key),
        };
        Self { key, span, value }
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub(super) fn table(self, expected: &str) -> Result<Table<'a>, Mistake> {
        match self.value {
            DeValue::Table(entries) => Ok(Table { at: self, entries }),
            _ => Err(self.not(expected)),
        }
    }

    /// The values of a list; `None` if this is not one.
    pub(super) fn list(&self) -> Option<impl ExactSizeIterator<Item = Self>> {
        let items = self.value.as_array()?.iter();
        Some(items.map(|item| Self {
            key: self.key.clone(),
            span: item.span(),
            value: item.get_ref(),
        }))
    }

    pub(super) fn boolean(&self) -> Result<bool, Mistake> {
        let value = self.value.as_bool();
        value.ok_or_else(|| self.not("true or false"))
    }

    /// A whole number. One of more than 64 bits is the largest, which every setting refuses as too
    /// large, or takes as without a bound.
    pub(super) fn number(&self) -> Result<u64, Mistake> {
        let wrong = || self.not("a whole number, 0 or more");
        let number = self.value.as_integer().ok_or_else(wrong)?;
        match u64::from_str_radix(number.as_str(), number.radix()) {
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(u64::MAX),
            number => number.map_err(|_| wrong()),
        }
    }

    /// What `parse` makes of a string; `expected` says what it takes.
    pub(super) fn text<T>(
        &self,
        expected: &str,
        parse: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, Mistake> {
        let parsed = self.value.as_str().and_then(parse);
        parsed.ok_or_else(|| self.not(expected))
    }

    /// What `parse` makes of each string of a list.
    pub(super) fn texts<T>(
        &self,
        expected_list: &str,
        expected: &str,
        parse: impl Fn(&'a str) -> Option<T>,
    ) -> Result<Vec<T>, Mistake> {
        let list = self.list().ok_or_else(|| self.not(expected_list))?;
        list.map(|item| item.text(expected, &parse)).collect()
    }

    /// The mistake that the value is not what is expected.
    pub(super) fn not(&self, expected: &str) -> Mistake {
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

    pub(super) fn mistake(&self, message: impl ToString) -> Mistake {
        Mistake {
            key: self.key.clone(),
            at: self.span.start,
            message: message.to_string(),
        }
    }
}

/// A name as a dotted key has to contain it: quoted unless it is a bare key.
fn quoted(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    }
}
