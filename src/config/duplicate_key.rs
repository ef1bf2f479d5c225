//! The path of a key that a text defines twice.
//!
//! The parser names the bytes of the second name and nothing of the tables around it. Three forms
//! have to be told apart:
//!
//! - a header, `[rules.a]` or `[[rules.a.quotas]]`: it contains the whole path;
//! - a key in the table of a header: the path is that of the last header before it;
//! - a key in an inline table, `{ name = "a", name = "b" }`: the path is that of the innermost one.

use std::ops::Range;

use toml::de::DeTable;

use super::location::{quoted, tables};

/// The key, with all tables around it, whose second name is at these bytes. The parser refuses such
/// a text, so its keys come from what the parser could recover.
pub(super) fn path(text: &str, span: &Range<usize>) -> Option<String> {
    let (file, _) = DeTable::parse_recoverable(text);
    let mut path = Vec::new();
    // The parser keeps the second header of a table that is defined twice.
    if find_exactly(file.get_ref(), span, &mut path) {
        return Some(path.join("."));
    }
    let line = text.get(..span.end)?.rsplit('\n').next()?.trim_start();
    if let Some(header) = line.strip_prefix("[[") {
        return Some(header.trim_start().to_owned());
    }
    let mut table = InnermostTable::default();
    table.search(file.get_ref(), text, span.start, &mut path);
    let key = match text.as_bytes().get(table.start) {
        Some(b'{') => text.get(span.clone())?,
        // Outside of inline tables a key begins its line. `span` is only a part of a dotted key.
        _ => line,
    };
    table.path.push(key.to_owned());
    Some(table.path.join("."))
}

/// Finds the key whose name is exactly these bytes.
fn find_exactly(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    for (name, value) in table {
        path.push(quoted(name.get_ref()));
        if name.span() == *span || tables(value).any(|(_, table)| find_exactly(table, span, path)) {
            return true;
        }
        path.pop();
    }
    false
}

/// The table that a place in the text belongs to: the last one that begins before it and is not
/// closed.
#[derive(Default)]
struct InnermostTable {
    start: usize,
    path: Vec<String>,
}

impl InnermostTable {
    /// Searches `table`, whose own path is `path`, for a later table that begins before `at`.
    fn search(&mut self, table: &DeTable<'_>, text: &str, at: usize, path: &mut Vec<String>) {
        for (name, value) in table {
            path.push(quoted(name.get_ref()));
            for (span, table) in tables(value) {
                let reaches = match text.as_bytes().get(span.start) {
                    Some(b'[') => true,
                    Some(b'{') => at < span.end,
                    // The table is a part of a dotted key: it has no header.
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
