//! A piece of source found by its shape: a renamed identifier or another line break changes
//! nothing.
//!
//! Two pieces have the same shape if they differ in white space and in names alone, and wherever
//! the one repeats a name, so does the other.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// Of Rust and of Lua, sorted. No rename changes them.
const KEYWORDS: &[&str] = &[
    "Self", "and", "as", "async", "await", "break", "const", "continue", "crate", "do", "dyn",
    "else", "elseif", "end", "enum", "extern", "false", "fn", "for", "function", "goto", "if",
    "impl", "in", "let", "local", "loop", "match", "mod", "move", "mut", "nil", "not", "or", "pub",
    "ref", "repeat", "return", "self", "static", "struct", "super", "then", "trait", "true",
    "type", "unsafe", "until", "use", "where", "while",
];

/// Where a shape was found, and what its names are there.
pub(crate) struct Found<'a> {
    range: Range<usize>,
    names: HashMap<&'a str, &'a str>,
    /// How many names are what they were.
    kept: usize,
}

/// The places with this shape that keep the most names.
pub(crate) fn find<'a>(shape: &'a str, text: &'a str) -> Vec<Found<'a>> {
    let (shape, text) = (tokens(shape), tokens(text));
    let places = text.windows(shape.len());
    let mut found: Vec<_> = places.filter_map(|place| compare(&shape, place)).collect();
    let most = found.iter().map(Found::kept).max();
    found.retain(|found| Some(found.kept) == most);
    found
}

impl Found<'_> {
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// The text with something else in this place, which is written with the names as they were.
    pub(crate) fn replace(&self, text: &str, by: &str) -> String {
        let mut replaced = text[..self.range.start].to_owned();
        let mut end = 0;
        let by = by.trim();
        for token in tokens(by) {
            replaced += &by[end..token.start];
            let renamed = self.names.get(token.text);
            replaced += renamed.copied().unwrap_or(token.text);
            end = token.start + token.text.len();
        }
        replaced + &text[self.range.end..]
    }
}

#[derive(Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    start: usize,
    is_name: bool,
}

impl Token<'_> {
    /// Equal, or names both.
    fn is_like(&self, other: &Self) -> bool {
        self.is_name && other.is_name || self.text == other.text
    }
}

fn compare<'a>(shape: &[Token<'a>], place: &[Token<'a>]) -> Option<Found<'a>> {
    if !shape
        .iter()
        .zip(place)
        .all(|(token, here)| token.is_like(here))
    {
        return None;
    }
    let mut names = HashMap::new();
    for (token, here) in shape.iter().zip(place).filter(|(token, _)| token.is_name) {
        if *names.entry(token.text).or_insert(here.text) != here.text {
            return None;
        }
    }
    let (first, last) = (place.first()?, place.last()?);
    Some(Found {
        range: first.start..last.start + last.text.len(),
        kept: names.iter().filter(|(name, here)| name == here).count(),
        names,
    })
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
        && KEYWORDS.binary_search(&token).is_err()
}

/// The names in a piece, each once.
pub(crate) fn names(text: &str) -> BTreeSet<&str> {
    let names = tokens(text).into_iter().filter(|token| token.is_name);
    names.map(|token| token.text).collect()
}

/// The same text with a name that is another one.
pub(crate) fn rename(text: &str, from: &str, to: &str) -> String {
    let mut renamed = String::new();
    let mut end = 0;
    for token in tokens(text) {
        renamed += &text[end..token.start];
        renamed += if token.text == from { to } else { token.text };
        end = token.start + token.text.len();
    }
    renamed + &text[end..]
}

/// Words and numbers as they are, and each other character alone.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii();
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let word = bytes[start..].iter().take_while(|byte| is_word(byte));
        let length = word.count().max(1);
        if !bytes[start].is_ascii_whitespace() {
            let text = &text[start..start + length];
            let is_name = is_name(text);
            tokens.push(Token {
                text,
                start,
                is_name,
            });
        }
        start += length;
    }
    tokens
}
