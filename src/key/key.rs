use std::fmt;
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::cookie::decoded;
use super::key_extractor::Everyone;
use crate::question::{KeyText, as_str, hash};

/// The most bytes of a part that is stored as it is. Longer parts are hashed, so that a client
/// cannot fill a store with long header fields.
const MAX_PLAIN_PART: usize = 64;

/// Identifies the requests that are counted together, by zero or more parts such as an address or a
/// tenant.
///
/// Two keys are equal only if they have the same parts: `("a:b", "c")` is not `("a", "b:c")`.
/// Whatever bytes a part holds, the key is printable ASCII without blanks, `{` and `}`, so no
/// client can break a protocol or choose a slot of a Redis cluster with it. A part of more than 64
/// bytes, and a part that is [secret](Key::with_secret), is stored as 128 bits of its SHA-256. An
/// empty part is `%`.
///
/// ```
/// use tidegate::Key;
///
/// let key = Key::default().with("10.0.0.7").with("acme:eu");
/// assert_eq!(key.as_str(), "10.0.0.7:acme%3Aeu");
/// ```
///
/// A text, an integer and an address are keys of one part. That of an address is the one that
/// [`PeerIp`](crate::PeerIp) makes of it; [`ClientIp::key`](crate::ClientIp::key) makes that of a
/// [`ClientIp`](crate::ClientIp) with another prefix.
///
/// ```
/// use std::net::IpAddr;
/// use tidegate::Key;
///
/// assert_eq!(Key::from(17_u64), Key::from("17"));
/// let client: IpAddr = "2001:db8::7".parse()?;
/// assert_eq!(Key::from(client).as_str(), "2001%3Adb8%3A%3A/64");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Default)]
pub struct Key {
    /// Escaped parts joined by `:`.
    encoded: KeyText,
    parts: u32,
    /// Whether it was made of an address and nothing else.
    pub(crate) is_address: bool,
}

impl Key {
    /// A key of one part that is stored as a hash only, such as a token. It is the key that
    /// [`Bearer`](crate::key::Bearer) makes of that token.
    ///
    /// ```
    /// use tidegate::Key;
    ///
    /// let key = Key::secret("our-token");
    /// assert!(!key.as_str().contains("our-token"));
    /// ```
    #[must_use]
    pub fn secret(part: impl AsRef<[u8]>) -> Self {
        Self::default().with_secret(part)
    }

    /// A key of which nobody reads what this one says, for the log.
    pub(crate) fn hashed(&self) -> Self {
        Self::secret(self.as_str())
    }

    /// This key with one more part.
    #[must_use]
    pub fn with(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        if part.len() > MAX_PLAIN_PART {
            return self.with_secret(part);
        }
        let is_plain = |byte: &u8| PLAIN[usize::from(*byte)];
        if self.parts == 0 && !part.is_empty() && part.iter().all(is_plain) {
            return Self::one_part(part);
        }
        let mut text = self.separated();
        if part.is_empty() {
            // No escaped part is this, and a key without parts has another text.
            text.push(b'%');
        }
        escape(part, &mut text);
        self.encoded = KeyText::new(&text);
        self
    }

    /// This key with one more part that is stored as a hash only.
    #[must_use]
    pub fn with_secret(mut self, part: impl AsRef<[u8]>) -> Self {
        let mut text = self.separated();
        text.push(b'#');
        for byte in &Sha256::digest(part.as_ref())[..16] {
            push_hex(*byte, b"0123456789abcdef", &mut text);
        }
        self.encoded = KeyText::new(&text);
        self
    }

    /// This key with one more part that stands for a missing value. It differs from the empty
    /// part.
    #[must_use]
    pub fn with_nothing(mut self) -> Self {
        let mut text = self.separated();
        text.push(b'~');
        self.encoded = KeyText::new(&text);
        self
    }

    /// This key with the parts of `other` behind its own.
    #[must_use]
    pub fn join(mut self, other: &Self) -> Self {
        if other.parts > 0 {
            let mut text = self.separated();
            text.extend_from_slice(other.encoded.as_bytes());
            self.encoded = KeyText::new(&text);
            self.parts += other.parts - 1;
        }
        self
    }

    /// Its part in the hashes of names.
    #[inline]
    pub(crate) fn hash_in_names(&self) -> u64 {
        match self.is_empty() {
            true => 0,
            false => hash(self.encoded.as_bytes()),
        }
    }

    /// The key of an address, of one part that needs no mark.
    pub(super) fn address(part: impl AsRef<[u8]>) -> Self {
        let is_address = true;
        Self {
            is_address,
            ..Self::default().with(part)
        }
    }

    /// The same, of a text without an escape.
    pub(super) fn plain_address(text: &[u8]) -> Self {
        let is_address = true;
        Self {
            is_address,
            ..Self::one_part(text)
        }
    }

    /// The key of one part that is stored as a hash, of its text.
    pub(super) fn from_hash(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('#')?;
        let is_hash = digits.len() == 32 && digits.bytes().all(|it| it.is_ascii_hexdigit());
        is_hash.then(|| Self::from_text(text))?
    }

    /// The key of one part that this key is within alternatives, behind the mark of its extractor.
    /// Addresses have no mark. No other part contains a `|`, and nothing but several parts in one
    /// stands between `<` and `>`, so what is equal has the same mark and the same parts.
    pub(super) fn behind(self, mark: &str) -> Self {
        if self.is_address {
            return self;
        }
        let (open, close) = match self.parts {
            0 => ("", ""),
            1 => ("|", ""),
            _ => ("|<", ">"),
        };
        Self::one_part([mark, open, self.as_str(), close].concat().as_bytes())
    }

    /// A key that differs wherever one of these keys does, or is missing.
    pub(crate) fn from_subjects(keys: &[Option<Self>]) -> Self {
        let mut text = Text::new();
        for (at, key) in keys.iter().enumerate() {
            if at > 0 {
                text.push(b':');
            }
            match key {
                Some(key) if key.parts == 1 => text.extend_from_slice(key.encoded.as_bytes()),
                // No part of a key begins with `<`.
                Some(key) => {
                    text.push(b'<');
                    text.extend_from_slice(key.encoded.as_bytes());
                    text.push(b'>');
                }
                None => text.extend_from_slice(b"<~>"),
            }
        }
        let parts = u32::try_from(keys.len()).expect("a rule has few subjects");
        Self {
            parts,
            ..Self::one_part(&text)
        }
    }

    /// What names this key as that of one subject of a joint rule, in lists of keys of rules:
    /// `user>alice`. In the text of any other key each `>` closes a `<`, so none has this one.
    pub(crate) fn with_subject(&self, name: &str) -> Self {
        // The only subject of its rule.
        if name.is_empty() {
            return self.clone();
        }
        Self::one_part([&*escaped(name), ">", self.as_str()].concat().as_bytes())
    }

    /// A key of one part, with this text.
    #[inline]
    fn one_part(encoded: &[u8]) -> Self {
        Self {
            encoded: KeyText::new(encoded),
            parts: 1,
            is_address: false,
        }
    }

    /// The name of the subject, if this is such a text, and the text of the key.
    pub(crate) fn split_subject(text: &str) -> (Option<String>, &str) {
        match text.split_once('>').filter(|it| !it.0.contains('<')) {
            None => (None, text),
            Some((name, key)) => {
                let name = decoded(name.as_bytes()).unwrap_or(name.into());
                (Some(name.into_owned()), key)
            }
        }
    }

    /// The key with this [text](Self::as_str); `None` if no key has it.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let is_possible = |byte: u8| PLAIN[usize::from(byte)] || b":%#~|<>".contains(&byte);
        if !text.bytes().all(is_possible) {
            return None;
        }
        // Between these stand several parts in one.
        let mut depth = 0_i32;
        let mut parts = u32::from(!text.is_empty());
        for byte in text.bytes() {
            match byte {
                b'<' => depth += 1,
                b'>' => depth -= 1,
                b':' if depth == 0 => parts += 1,
                _ => {}
            }
        }
        Some(Self {
            encoded: KeyText::new(text.as_bytes()),
            parts,
            is_address: false,
        })
    }

    /// The encoded parts, joined by `:`. Only a key without parts gives the empty string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.encoded.as_str()
    }

    /// What its parts say, for code that is given a key, such as that of a
    /// [lock-out](crate::layer::LockedOut): `None` for a part that is stored as a hash, that stands
    /// for a missing value, or that is no UTF-8. Of alternatives that is the value, without the
    /// name of its extractor.
    ///
    /// ```
    /// use tidegate::Key;
    ///
    /// let key = Key::from("acme: EU").with_secret("token");
    /// let parts: Vec<_> = key.parts().collect();
    /// assert_eq!(parts, [Some("acme: EU".to_owned()), None]);
    /// ```
    pub fn parts(&self) -> impl Iterator<Item = Option<String>> {
        // A key without parts has an empty text.
        let parts = self.as_str().split(':').filter(|_| !self.is_empty());
        parts.map(|part| {
            let value = part.rsplit_once('|').map_or(part, |(_, value)| value);
            match value.trim_matches(['<', '>']) {
                "%" => Some(String::new()),
                unknown if unknown.starts_with(['#', '~']) => None,
                value => String::from_utf8(percent_decoded(value.as_bytes())).ok(),
            }
        })
    }

    /// Whether the key has no parts, as for a rule that counts all requests together.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// Its text, to which another part is to be added.
    fn separated(&mut self) -> Text {
        let mut text = Text::from_slice(self.encoded.as_bytes());
        if self.parts > 0 {
            text.push(b':');
        }
        self.parts += 1;
        self.is_address = false;
        text
    }

    #[inline]
    pub(crate) const fn text(&self) -> &KeyText {
        &self.encoded
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (self.parts, self.encoded.as_bytes()) == (other.parts, other.encoded.as_bytes())
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.parts, self.encoded.as_bytes()).hash(state);
    }
}

impl From<&str> for Key {
    /// A key of one part.
    fn from(part: &str) -> Self {
        Self::default().with(part)
    }
}

impl From<String> for Key {
    /// A key of one part.
    fn from(part: String) -> Self {
        Self::default().with(part)
    }
}

impl<K: Clone + Into<Key>> From<&K> for Key {
    /// The key of what is borrowed, such as a field of a user.
    fn from(key: &K) -> Self {
        key.clone().into()
    }
}

impl<A: Into<Self>, B: Into<Self>> From<(A, B)> for Key {
    /// The joined key that a tuple of extractors makes: `(organization, user)`.
    fn from((first, second): (A, B)) -> Self {
        Self::default().join(&first.into()).join(&second.into())
    }
}

impl From<Everyone> for Key {
    /// The key of all requests together.
    fn from(_: Everyone) -> Self {
        Self::default()
    }
}

macro_rules! impl_from_integers {
    ($($integer:ty),+) => {
        $(impl From<$integer> for Key {
            /// A key of one part: the digits.
            fn from(number: $integer) -> Self {
                Self::default().with(itoa::Buffer::new().format(number))
            }
        })+
    };
}

impl_from_integers!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize
);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.as_str())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text of a key while it is made: most need no allocation before they are shared.
type Text = SmallVec<[u8; 128]>;

/// Appends `part` to `into`, with all bytes but ASCII letters, digits and some punctuation
/// percent-encoded.
///
/// The characters with a meaning in keys are encoded, too: `:` separates parts, `#` begins a hash,
/// `~` stands for a missing value, `{` and `}` choose a cluster slot.
fn escape(part: &[u8], into: &mut Text) {
    for &byte in part {
        if PLAIN[usize::from(byte)] {
            into.push(byte);
        } else {
            into.push(b'%');
            push_hex(byte, b"0123456789ABCDEF", into);
        }
    }
}

/// A text as it was before it was percent-encoded. What is no escape stands for itself.
pub(crate) fn percent_decoded(mut bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    while let [first, rest @ ..] = bytes {
        let digits = rest.get(..2).filter(|_| *first == b'%');
        let digits = digits.filter(|it| it.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        text.push(byte.unwrap_or(*first));
        bytes = if byte.is_some() { &rest[2..] } else { rest };
    }
    text
}

/// This part, encoded as in a key.
pub(crate) fn escaped(part: &str) -> String {
    let mut text = Text::new();
    escape(part.as_bytes(), &mut text);
    as_str(&text).to_owned()
}

fn push_hex(byte: u8, digits: &[u8; 16], into: &mut Text) {
    into.extend([byte >> 4, byte & 15].map(|half| digits[usize::from(half)]));
}

/// Which bytes stand for themselves.
const PLAIN: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] = is_plain(byte as u8);
        byte += 1;
    }
    table
};

const fn is_plain(byte: u8) -> bool {
    matches!(
        byte,
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'/' | b'@' | b'!' | b'$'
            | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b'?'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(parts: &[&str]) -> Key {
        parts
            .iter()
            .fold(Key::default(), |key, part| key.with(part))
    }

    #[test]
    fn parts_stay_apart() {
        let keys = [
            key(&[]),
            key(&[""]),
            key(&["", ""]),
            key(&["a:b", "c"]),
            key(&["a", "b:c"]),
            key(&["a", "b", "c"]),
            key(&["a%3Ab", "c"]),
            key(&["~"]),
            Key::default().with_nothing(),
            key(&["#00"]),
            Key::default().with_secret("a"),
            key(&["a"]),
        ];
        for (i, one) in keys.iter().enumerate() {
            for other in &keys[i + 1..] {
                assert_ne!(one, other);
            }
        }
    }

    #[test]
    fn the_key_of_a_subject_is_no_other_key() {
        let keys = [
            key(&[]),
            key(&["a", "b"]),
            key(&["user>alice"]),
            Key::from_subjects(&[Some(key(&["a", "b"])), None]),
            key(&["a", "b"]).behind("header.x-user"),
        ];
        for key in &keys {
            assert_eq!(Key::split_subject(key.as_str()).0, None, "{key}");
            for name in ["user", "header:x-user", "<u>:{%41}", "\u{e9} >"] {
                let with_subject = key.with_subject(name);
                let split = Key::split_subject(with_subject.as_str());
                assert_eq!(split, (Some(name.to_owned()), key.as_str()));
                assert!(!with_subject.as_str().contains(' '));
            }
        }
    }

    #[test]
    fn joining_is_appending() {
        assert_eq!(
            key(&["a", "b"]).join(&key(&["", "c"])),
            key(&["a", "b", "", "c"])
        );
        assert_eq!(key(&[]).join(&key(&[""])), key(&[""]));
        assert_eq!(key(&[""]).join(&key(&[])), key(&[""]));
    }

    #[test]
    fn control_characters_braces_and_blanks_are_encoded() {
        let key = key(&["{user}\r\nFLUSHALL \0\u{e9}"]);
        assert_eq!(key.as_str(), "%7Buser%7D%0D%0AFLUSHALL%20%00%C3%A9");
    }

    #[test]
    fn long_and_secret_parts_are_hashed() {
        let long = "x".repeat(65);
        assert_eq!(key(&[&long]).as_str().len(), 33);
        assert_eq!(key(&[&long]), Key::default().with_secret(&long));
        // The well-known SHA-256 of "abc", its first half.
        assert_eq!(
            Key::default().with_secret("abc").as_str(),
            "#ba7816bf8f01cfea414140de5dae2223"
        );
    }
}
