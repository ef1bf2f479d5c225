//! What a store keeps a count under.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::key::{Key, hash};

/// Names a count, in every store: pieces of its text, and a hash of them. Stores, caches and
/// flights find the count by the hash.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    /// With the prefix of its own, if it has one.
    id: Arc<str>,
    key: Arc<str>,
    hash: u64,
    has_prefix: bool,
    /// What it ends with, if it is that of permits, or of a calendar quota, beside the count of
    /// this id and key.
    ending: &'static str,
}

/// What the names of all keys of a count have in common.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    id: Arc<str>,
    id_hash: u64,
    has_prefix: bool,
    ending: &'static str,
}

impl Names {
    /// What the names of permits end with.
    pub(crate) const PERMITS: &'static str = "~permits";

    /// Those of the count with this id, or of one beside it, whose names end like this.
    pub(crate) fn new(prefix: Option<&str>, id: &str, ending: &'static str) -> Self {
        Self {
            id: [prefix.unwrap_or_default(), id].concat().into(),
            id_hash: hash(id) ^ ending.len() as u64,
            has_prefix: prefix.is_some(),
            ending,
        }
    }

    /// The name of the count of this key, with its [hash](Key::hash_in_names).
    #[inline]
    pub(crate) fn of(&self, key: &Key, key_hash: u64) -> Name {
        Name {
            id: Arc::clone(&self.id),
            key: Arc::clone(key.shared_text()),
            hash: self.id_hash.rotate_left(32) ^ key_hash,
            has_prefix: self.has_prefix,
            ending: self.ending,
        }
    }
}

impl Name {
    /// A name as it is, which no rule makes.
    #[cfg(feature = "redis")]
    pub(crate) fn whole(text: &str) -> Self {
        Names::new(Some(""), text, "").of(&Key::default(), 0)
    }

    fn separator(&self) -> &'static str {
        if self.key.is_empty() { "" } else { ":" }
    }

    /// Prefixes hardly ever tell two names apart.
    #[inline]
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// What it is in a store whose names all begin with `service`, and with `default` where they
    /// have no prefix of their own.
    pub(crate) fn joined(&self, service: &str, default: &str) -> SmallVec<[u8; 128]> {
        let default = if self.has_prefix { "" } else { default };
        let mut joined = SmallVec::new();
        for piece in [service, default, &self.id, self.separator(), &self.key] {
            joined.extend_from_slice(piece.as_bytes());
        }
        if !self.ending.is_empty() {
            let name = str::from_utf8(&joined).expect("it is made of texts");
            return beside(name, self.ending).as_bytes().into();
        }
        joined
    }

    pub(crate) fn text(&self, service: &str, default: &str) -> String {
        let joined = self.joined(service, default);
        String::from_utf8(joined.into_vec()).expect("it is made of texts")
    }

    /// Whether it is this one in a store without prefixes.
    #[inline]
    pub(crate) fn is(&self, name: &str) -> bool {
        let rest = name.strip_suffix(self.ending);
        let rest = rest.and_then(|name| name.strip_prefix(&*self.id));
        match (rest, &*self.key) {
            (Some(rest), "") => rest.is_empty(),
            (Some(rest), key) => rest.strip_prefix(':') == Some(key),
            (None, _) => false,
        }
    }

    /// Whether it names the count of a key.
    pub(crate) fn has_key(&self) -> bool {
        !self.key.is_empty()
    }

    /// The text in a store without prefixes.
    pub(crate) fn plain(&self) -> String {
        [&*self.id, self.separator(), &*self.key, self.ending].concat()
    }
}

/// The name of what stands beside the count `name`, in its slot of a cluster.
pub(crate) fn beside(name: &str, ending: &str) -> String {
    match has_tag(name) {
        true => format!("{name}{ending}"),
        false => format!("{{{name}}}{ending}"),
    }
}

/// Whether a part of the name chooses the slot of a cluster.
pub(crate) fn has_tag(name: &str) -> bool {
    let after = name.split_once('{');
    after.is_some_and(|(_, rest)| rest.contains('}'))
}

impl PartialEq for Name {
    /// Whether both name the same count in one store.
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && self.has_prefix == other.has_prefix
            && self.ending == other.ending
            && (Arc::ptr_eq(&self.id, &other.id) || self.id == other.id)
            && self.key == other.key
    }
}

impl Eq for Name {}
