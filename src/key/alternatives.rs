use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;

use super::key::Key;
use super::key_extractor::{KeyExtractor, escaped_mark};
use crate::error::KeyError;
use crate::warning::Warning;

/// Extractors of which the first makes the key whose part of the request is there: what
/// [`KeyExtractor::or`] makes.
///
/// A request that has none of the parts is an error of the kind
/// [`Absent`](super::KeyErrorKind::Absent), and is answered with a 400.
///
/// ```
/// use tidegate::key::Bearer;
/// use tidegate::{KeyExtractor, Limits, PeerIp, Rules};
///
/// // By the token; a request without one by its address.
/// let limits = Limits::new(Rules::default()).key(Bearer.or(PeerIp));
/// # let _ = limits;
/// ```
#[derive(Clone)]
pub struct Alternatives(Vec<Alternative>);

#[derive(Clone)]
struct Alternative {
    /// Different from those of all others in the list.
    mark: Box<str>,
    extractor: Arc<dyn KeyExtractor>,
}

impl Alternatives {
    pub(super) fn new(first: impl KeyExtractor) -> Self {
        let mut alternatives = Self(Vec::new());
        alternatives.add(first);
        alternatives
    }

    /// Adds an extractor, or all of its alternatives.
    fn add(&mut self, extractor: impl KeyExtractor) {
        match extractor.alternatives() {
            single if single.is_empty() => self.add_single(Arc::new(extractor)),
            several => several.into_iter().for_each(|it| self.add_single(it)),
        }
    }

    fn add_single(&mut self, extractor: Arc<dyn KeyExtractor>) {
        let own = escaped_mark(&extractor);
        let is_used = |mark: &str| self.0.iter().any(|known| *known.mark == *mark);
        let mut mark = own.clone();
        let mut number = 1;
        while is_used(&mark) {
            number += 1;
            mark = format!("{own}#{number}");
        }
        let mark = mark.into();
        self.0.push(Alternative { mark, extractor });
    }
}

impl KeyExtractor for Alternatives {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        let none = || KeyError::absent(format!("the request has none of {}", self.mark()));
        self.find(head)?.ok_or_else(none)
    }

    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        for Alternative { mark, extractor } in &self.0 {
            if let Some(key) = extractor.find(head)? {
                return Ok(Some(key.behind(mark)));
            }
        }
        Ok(None)
    }

    fn mark(&self) -> Cow<'static, str> {
        let marks: Vec<_> = self.0.iter().map(|it| &*it.mark).collect();
        marks.join(" | ").into()
    }

    fn alternatives(&self) -> Vec<Arc<dyn KeyExtractor>> {
        let extractors = self.0.iter().map(|it| Arc::clone(&it.extractor));
        extractors.collect()
    }

    fn key_of_text(&self, text: &str) -> Option<Key> {
        self.0.iter().find_map(|Alternative { mark, extractor }| {
            let value = text.strip_prefix(&**mark);
            let value = value.and_then(|rest| rest.strip_prefix('|'));
            let key = extractor.key_of_text(value.unwrap_or(text))?;
            (value.is_some() || key.is_address).then(|| key.behind(mark))
        })
    }

    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        let found = self.0.iter().filter_map(|it| it.extractor.warning(fields));
        // A field before another alternative is none that each guess needs.
        let mut others = self.0.iter().rev().skip(1);
        let field = others.find(|it| it.mark.starts_with("header.") && fields.is_empty());
        let of_field = field.map(|it| Warning::of_guesses(&it.mark));
        found.chain(of_field).min_by_key(|it| it.is_second)
    }

    fn or(mut self, other: impl KeyExtractor) -> Alternatives {
        self.add(other);
        self
    }
}

impl fmt::Debug for Alternatives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks = self.0.iter().map(|it| &it.mark);
        f.write_str("Alternatives")?;
        f.debug_list().entries(marks).finish()
    }
}
