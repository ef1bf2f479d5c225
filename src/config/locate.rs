//! Where in a TOML text something stands.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// The line of a byte, counted from 1.
pub(super) fn line(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// The line on which it comes to a mistake of which the parser does not say where it is, such as tables nested too deeply.
pub(super) fn unplaced(text: &str) -> usize {
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let is_behind = |end: &usize| {
        let parsed = DeTable::parse(&text[..*end]);
        parsed.is_err_and(|error| error.span().is_none())
    };
    1 + ends.partition_point(|end| !is_behind(end))
}

/// The key, with all tables around it, whose name or value is at this place.
pub(super) fn key(text: &str, span: &Range<usize>) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    let mut path = Vec::new();
    find(table.get_ref(), span, &mut path).then(|| path.join("."))
}

/// A name as it has to stand in a dotted key.
fn quoted(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    }
}

/// Deepest first: a table's own span may be its header alone, or hold all that is in it.
fn find(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    let within = |outer: Range<usize>| outer.start <= span.start && span.end <= outer.end;
    for (name, value) in table {
        path.push(quoted(name.get_ref()));
        let inner = match value.get_ref() {
            DeValue::Table(table) => find(table, span, path),
            DeValue::Array(items) => items.iter().any(|item| match item.get_ref() {
                DeValue::Table(table) => find(table, span, path),
                _ => false,
            }),
            _ => false,
        };
        if inner || within(name.span()) || within(value.span()) {
            return true;
        }
        path.pop();
    }
    false
}
