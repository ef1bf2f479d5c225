//! The line and the key of a place in a TOML text.
//!
//! A place is a range of bytes, as the parser and [`toml::Spanned`] give it. The key is found by
//! parsing the text again: errors are rare, and rules would have to keep every name otherwise.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The line of the byte at this index, counted from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// The first line of a text where the parser gives up without naming a place, because tables are
/// nested too deeply. Found by parsing the text up to different lines.
pub(super) fn line_of_recursion_limit(text: &str) -> usize {
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let is_included = |end: &usize| {
        let parsed = DeTable::parse(&text[..*end]);
        parsed.is_err_and(|error| error.span().is_none())
    };
    1 + ends.partition_point(|end| !is_included(end))
}

/// The key, with all tables around it, whose name or value includes these bytes.
pub(super) fn key_at(text: &str, span: &Range<usize>) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    let mut path = Vec::new();
    find(table.get_ref(), span, &mut path).then(|| path.join("."))
}

/// A name as a dotted key has to contain it: quoted unless it is a bare key.
pub(super) fn quoted(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    }
}

/// Finds the innermost key. A table's keys are searched before the table itself, because its span
/// may be its header alone, or include all its keys.
fn find(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    let within = |outer: Range<usize>| outer.start <= span.start && span.end <= outer.end;
    for (name, value) in table {
        path.push(quoted(name.get_ref()));
        let inner = tables(value).any(|(_, table)| find(table, span, path));
        if inner || within(name.span()) || within(value.span()) {
            return true;
        }
        path.pop();
    }
    false
}

/// The value if it is a table, or the tables of a list, each with its place: that of its header, or
/// all of an inline table.
pub(super) fn tables<'a, 'i>(
    value: &'a Spanned<DeValue<'i>>,
) -> impl Iterator<Item = (Range<usize>, &'a DeTable<'i>)> {
    let items = value.get_ref().as_array().into_iter().flatten();
    std::iter::once(value)
        .chain(items)
        .filter_map(|value| Some((value.span(), value.get_ref().as_table()?)))
}
