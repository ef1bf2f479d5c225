use super::Take;
use crate::key::hash;

/// What a take's count is called: the prefix, the rule's id, and the key's parts, joined by `:`.
///
/// Neither id nor parts hold a bare `:`, so two different takes never share a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    prefix: &'a str,
    id: &'a str,
    id_hash: u64,
    /// With its separator; `None` where nobody in particular is asking.
    key: Option<&'a str>,
}

impl<'a> Name<'a> {
    pub(crate) fn new(take: &'a Take, default_prefix: &'a str) -> Self {
        let rule = take.rule();
        Self {
            prefix: rule.key_prefix().unwrap_or(default_prefix),
            id: rule.id(),
            id_hash: rule.id_hash(),
            key: (!take.key().is_empty()).then(|| take.key().as_str()),
        }
    }

    /// Of what tells names apart; prefixes hardly do.
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

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.prefix)?;
        f.write_str(self.id)?;
        self.key.map_or(Ok(()), |key| write!(f, ":{key}"))
    }
}
