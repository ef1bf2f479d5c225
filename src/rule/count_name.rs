use std::sync::Arc;

use super::Rule;
use crate::key::Key;

/// Names the count of a rule and key: the rule's id, the text of the key, and one hash of both.
///
/// Stores, caches and flights find the count by the hash. Only what is kept or sent is
/// joined to one text.
#[derive(Debug, Clone)]
pub(crate) struct CountName {
    pub(crate) rule: Arc<Rule>,
    pub(crate) key: Key,
    pub(crate) key_hash: u64,
}

impl CountName {
    #[inline]
    pub(crate) fn new(rule: Arc<Rule>, key: Key) -> Self {
        let key_hash = key.hash_in_names();
        Self {
            rule,
            key,
            key_hash,
        }
    }

    /// A hash of the id and the key: prefixes hardly ever tell two names apart.
    pub(crate) fn hash(&self) -> u64 {
        self.rule.resolved().common.id_hash.rotate_left(32) ^ self.key_hash
    }
}

impl PartialEq for CountName {
    /// Whether both name the same count in one store.
    fn eq(&self, other: &Self) -> bool {
        let is_same = || {
            let (own, other) = (&self.rule, &other.rule);
            own.id() == other.id() && own.prefix() == other.prefix()
        };
        self.hash() == other.hash()
            && self.key == other.key
            && (Arc::ptr_eq(&self.rule, &other.rule) || is_same())
    }
}

impl Eq for CountName {}
