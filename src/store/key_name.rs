use super::Take;
use crate::key::{Key, hash};
use crate::rule::Rule;

/// The name under which a store keeps the count of a rule and key: the prefix, the rule's
/// [id](Rule::id), and the key's parts, joined by `:`.
///
/// Neither ids nor parts of keys hold a bare `:`, so two different counts never share a name.
///
/// ```
/// use tidegate::store::KeyName;
/// use tidegate::{Algorithm, Key, Quota, Rule};
///
/// let rule = Rule::new("login", [Quota::per_minute(5)])?.with_algorithm(Algorithm::Gcra);
/// let key = Key::from("alice");
/// let name = KeyName::new(&rule, &key, "CurrentLimiter:");
/// assert_eq!(name.to_string(), "CurrentLimiter:login~gcra:alice");
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct KeyName<'a> {
    prefix: &'a str,
    id: &'a str,
    id_hash: u64,
    /// `None` for a rule without a key: then there is no separator behind the id, either.
    key: Option<&'a str>,
}

impl<'a> KeyName<'a> {
    /// The name of this rule's and key's count. `default_prefix` is for rules that have no
    /// [prefix](Rule::prefix) of their own.
    #[must_use]
    pub fn new(rule: &'a Rule, key: &'a Key, default_prefix: &'a str) -> Self {
        Self {
            prefix: rule.prefix().unwrap_or(default_prefix),
            id: rule.id(),
            id_hash: rule.id_hash(),
            key: (!key.is_empty()).then(|| key.as_str()),
        }
    }

    pub(crate) fn of(take: &'a Take, default_prefix: &'a str) -> Self {
        Self::new(take.rule(), take.key(), default_prefix)
    }

    /// A hash of the id and the key: prefixes hardly ever tell two names apart.
    pub(crate) fn hash(&self) -> u64 {
        match self.key {
            None => self.id_hash,
            Some(key) => self.id_hash.rotate_left(32) ^ hash(key),
        }
    }

    /// In an allocation of just its length.
    pub(crate) fn to_box(self) -> Box<str> {
        let mut name = String::with_capacity(self.pieces().map(str::len).iter().sum());
        self.pieces().iter().for_each(|piece| name.push_str(piece));
        name.into()
    }

    fn pieces(&self) -> [&'a str; 4] {
        let separator = if self.key.is_some() { ":" } else { "" };
        let key = self.key.unwrap_or_default();
        [self.prefix, self.id, separator, key]
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        let pieces = self.pieces();
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if name.len() != length {
            return false;
        }
        let mut rest = name.as_bytes();
        pieces
            .into_iter()
            // Comparing nothing is not free: the C library's way to do it is slow where there is no
            // memory behind the pointer.
            .filter(|piece| !piece.is_empty())
            .all(|piece| {
                let (start, left) = rest.split_at(piece.len());
                rest = left;
                *start == *piece.as_bytes()
            })
    }
}

impl std::fmt::Display for KeyName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.prefix)?;
        f.write_str(self.id)?;
        self.key.map_or(Ok(()), |key| write!(f, ":{key}"))
    }
}
