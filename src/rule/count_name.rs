use std::sync::Arc;

use super::Rule;
use crate::key::{Key, hash};

/// Names the count of a rule and key: the rule's id, the text of the key, and one hash of both.
///
/// Stores, caches and flights find the count by the hash. Only what is kept or sent is
/// joined to one text.
#[derive(Debug, Clone)]
pub(crate) struct CountName {
    pub(crate) rule: Arc<Rule>,
    pub(crate) key: Key,
    key_hash: u64,
}

impl CountName {
    #[inline]
    pub(crate) fn new(rule: Arc<Rule>, key: Key) -> Self {
        let key_hash = match key.is_empty() {
            true => 0,
            false => hash(key.as_str()),
        };
        Self {
            rule,
            key,
            key_hash,
        }
    }

    /// A hash of the id and the key: prefixes hardly ever tell two names apart.
    pub(crate) fn hash(&self) -> u64 {
        self.rule.computed().id_hash.rotate_left(32) ^ self.key_hash
    }

    /// What the name is joined of: the prefix, the id and the key behind a separator. A rule
    /// without a key has no separator, either.
    pub(crate) fn pieces<'a>(&'a self, default_prefix: &'a str) -> [&'a str; 4] {
        let separator = if self.key.is_empty() { "" } else { ":" };
        let prefix = self.rule.prefix().unwrap_or(default_prefix);
        [prefix, self.rule.id(), separator, self.key.as_str()]
    }

    /// The name under which a store keeps the count, behind `service`. That of permits is made of
    /// the name of the count beside them, in whose slot of a cluster it lies.
    pub(crate) fn text(&self, service: &str, default_prefix: &str) -> String {
        let name = [service, &self.pieces(default_prefix).concat()].concat();
        match self.rule.is_permits() {
            false => name,
            true if has_tag(&name) => format!("{name}~permits"),
            true => format!("{{{name}}}~permits"),
        }
    }

    /// Whether `name` is joined of these pieces.
    pub(crate) fn is(&self, name: &str, default_prefix: &str) -> bool {
        // Comparing nothing is not free: the C library's way to do it is slow where there is no
        // memory behind the pointer.
        let mut pieces = self.pieces(default_prefix).into_iter();
        let rest = pieces.try_fold(name, |rest, piece| match piece {
            "" => Some(rest),
            piece => rest.strip_prefix(piece),
        });
        rest.is_some_and(str::is_empty)
    }
}

/// Whether a part of the name chooses the slot of a cluster.
pub(crate) fn has_tag(name: &str) -> bool {
    let after = name.split_once('{');
    after.is_some_and(|(_, rest)| rest.contains('}'))
}

impl PartialEq for CountName {
    /// Whether both name the same count in one store.
    fn eq(&self, other: &Self) -> bool {
        let is_same = || {
            let (own, other) = (&self.rule, &other.rule);
            own.id() == other.id()
                && own.prefix() == other.prefix()
                && own.is_permits() == other.is_permits()
        };
        self.hash() == other.hash()
            && self.key == other.key
            && (Arc::ptr_eq(&self.rule, &other.rule) || is_same())
    }
}

impl Eq for CountName {}
