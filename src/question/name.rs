//! What a store keeps a count under.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use super::KeyText;

/// Names a count, in every store: pieces of its text, and a hash of them. Stores, caches and
/// flights find the count by the hash.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    of: Names,
    key: KeyText,
    hash: u64,
}

/// What the names of all keys of a count have in common.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Names(Arc<SharedParts>);

#[derive(Debug, PartialEq)]
struct SharedParts {
    /// With the prefix of its own, if it has one.
    id: Box<str>,
    id_hash: u64,
    has_prefix: bool,
    /// What the names end with, if they are those of permits, or of a calendar quota, beside the
    /// count of this id.
    ending: &'static str,
}

impl Names {
    /// What the names of permits end with.
    pub(crate) const PERMITS: &'static str = "~permits";

    /// Those of the count with this id, or of one beside it, whose names end like this.
    pub(crate) fn new(prefix: Option<&str>, id: &str, ending: &'static str) -> Self {
        Self(Arc::new(SharedParts {
            id: [prefix.unwrap_or_default(), id].concat().into(),
            id_hash: hash(id.as_bytes()) ^ ending.len() as u64,
            has_prefix: prefix.is_some(),
            ending,
        }))
    }

    /// The name of the count of the key with this text, and its [hash](crate::Key::hash_in_names).
    #[inline]
    pub(crate) fn name_for(&self, key: &KeyText, key_hash: u64) -> Name {
        Name {
            of: self.clone(),
            key: key.clone(),
            hash: self.0.id_hash.rotate_left(32) ^ key_hash,
        }
    }
}

impl Name {
    /// A name as it is, which no rule makes.
    #[cfg(feature = "redis")]
    pub(crate) fn whole(text: &str) -> Self {
        Names::new(Some(""), text, "").name_for(&KeyText::default(), 0)
    }

    /// The name beside this one in a fallback's own store, of the same key and the whole quotas.
    pub(crate) fn of_whole(&self) -> Self {
        let of = &*self.of.0;
        let whole = Names::new(None, &format!("{}~whole", of.id), of.ending);
        whole.name_for(&self.key, self.hash ^ of.id_hash.rotate_left(32))
    }

    fn separator(&self) -> &'static str {
        if self.has_key() { ":" } else { "" }
    }

    /// Prefixes hardly ever tell two names apart.
    #[inline]
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// What it is in a store whose names all begin with `service`, and with `default` where they
    /// have no prefix of their own.
    pub(crate) fn text(&self, service: &str, default: &str) -> String {
        let mut text = Vec::new();
        self.write(service, default, |piece| text.extend_from_slice(piece));
        String::from_utf8(text).expect("it is made of texts")
    }

    /// Writes that text, piece by piece.
    pub(crate) fn write(&self, service: &str, default: &str, mut write: impl FnMut(&[u8])) {
        let of = &*self.of.0;
        let default = if of.has_prefix { "" } else { default };
        let pieces = [service, default, &of.id, self.separator()].map(str::as_bytes);
        let pieces = pieces.into_iter().chain([self.key.as_bytes()]);
        if of.ending.is_empty() {
            return pieces.for_each(write);
        }
        let name = String::from_utf8(pieces.flatten().copied().collect());
        let name = name.expect("it is made of texts");
        write(beside(&name, of.ending).as_bytes());
    }

    /// Whether it is this one in a store without prefixes.
    #[inline]
    pub(crate) fn is(&self, name: &str) -> bool {
        let of = &*self.of.0;
        let rest = name.strip_suffix(of.ending);
        let rest = rest.and_then(|name| name.strip_prefix(&*of.id));
        match (rest, self.key.as_bytes()) {
            (Some(rest), b"") => rest.is_empty(),
            (Some(rest), key) => rest.as_bytes().strip_prefix(b":") == Some(key),
            (None, _) => false,
        }
    }

    /// Whether it names the count of a key.
    pub(crate) fn has_key(&self) -> bool {
        !self.key.as_bytes().is_empty()
    }

    /// The text in a store without prefixes.
    pub(crate) fn plain(&self) -> String {
        let of = &*self.of.0;
        [&*of.id, self.separator(), self.key.as_str(), of.ending].concat()
    }
}

/// The name of what stands beside the count `name`, in its slot of a cluster.
pub(crate) fn beside(name: &str, ending: &str) -> String {
    match has_tag(name) {
        true => format!("{name}{ending}"),
        false => format!("{{{name}}}{ending}"),
    }
}

/// Random in every process, so that no client can choose keys with equal hashes.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The hash of a text, for the maps of this process.
#[inline]
pub(crate) fn hash(text: &[u8]) -> u64 {
    let mut hasher = SEED.build_hasher();
    // Without its length, which tells apart only texts behind one another.
    hasher.write(text);
    hasher.finish()
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
            && (Arc::ptr_eq(&self.of.0, &other.of.0) || self.of.0 == other.of.0)
            && self.key.as_bytes() == other.key.as_bytes()
    }
}

impl Eq for Name {}
