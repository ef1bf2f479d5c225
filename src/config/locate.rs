//! Where in a TOML text something stands.

use std::ops::Range;

use toml::Spanned;
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

/// The key that stands here a second time. Its table is found although the text cannot be parsed.
pub(super) fn duplicate(text: &str, span: &Range<usize>) -> Option<String> {
    let (file, _) = DeTable::parse_recoverable(text);
    let mut path = Vec::new();
    // A table that is defined twice: its second header is the one that was kept.
    if find_name(file.get_ref(), span, &mut path) {
        return Some(path.join("."));
    }
    let line = text.get(..span.end)?.rsplit('\n').next()?.trim_start();
    if let Some(header) = line.strip_prefix("[[") {
        return Some(header.trim_start().to_owned());
    }
    let mut table = Enclosing::default();
    table.search(file.get_ref(), text, span.start, &mut path);
    let key = match text.as_bytes().get(table.start) {
        Some(b'{') => text.get(span.clone())?,
        // Other keys begin a line, with all parts of a dotted one.
        _ => line,
    };
    table.path.push(key.to_owned());
    Some(table.path.join("."))
}

/// A name as it has to stand in a dotted key.
pub(super) fn quoted(name: &str) -> String {
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
        let inner = tables(value).any(|(_, table)| find(table, span, path));
        if inner || within(name.span()) || within(value.span()) {
            return true;
        }
        path.pop();
    }
    false
}

/// The key whose name is exactly here.
fn find_name(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    for (name, value) in table {
        path.push(quoted(name.get_ref()));
        if name.span() == *span || tables(value).any(|(_, table)| find_name(table, span, path)) {
            return true;
        }
        path.pop();
    }
    false
}

/// A value that is a table, or the tables of a list, with their places: that of a header, or all
/// of an inline table.
fn tables<'a, 'i>(
    value: &'a Spanned<DeValue<'i>>,
) -> impl Iterator<Item = (Range<usize>, &'a DeTable<'i>)> {
    let items = value.get_ref().as_array().into_iter().flatten();
    std::iter::once(value)
        .chain(items)
        .filter_map(|value| Some((value.span(), value.get_ref().as_table()?)))
}

/// The table that a place in the text is in: the last one that starts before it and is not closed.
#[derive(Default)]
struct Enclosing {
    start: usize,
    path: Vec<String>,
}

impl Enclosing {
    fn search(&mut self, table: &DeTable<'_>, text: &str, at: usize, path: &mut Vec<String>) {
        for (name, value) in table {
            path.push(quoted(name.get_ref()));
            for (span, table) in tables(value) {
                let reaches = match text.as_bytes().get(span.start) {
                    Some(b'[') => true,
                    Some(b'{') => at < span.end,
                    // Only a part of a dotted key.
                    _ => false,
                };
                if reaches && (self.start..at).contains(&span.start) {
                    self.start = span.start;
                    self.path.clone_from(path);
                }
                self.search(table, text, at, path);
            }
            path.pop();
        }
    }
}
