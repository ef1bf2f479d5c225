use std::borrow::Cow;

use http::header::COOKIE;
use http::request::Parts;

use super::key::{Key, percent_decoded};
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;

/// The value of a cookie as the key. A value that nobody has verified is a way around the limit:
/// with a fresh value in each request, a client has a fresh limit each time.
///
/// So put the layer behind what verifies sessions, or [join](crate::key) the cookie with an
/// address.
///
/// One key is one value as the crate `cookie` reads it, and with it axum-extra's `CookieJar` and
/// tower-cookies: name and value are percent-decoded, without the blanks around them, and quotes
/// around the value do not count. Upper and lower case differ. Where what verifies the session
/// accepts still more spellings of it, such as a UUID in capitals, let it put what it found into
/// the extensions, and count by an [`Extension`](super::Extension).
///
/// The value is stored as a hash. A request without the cookie, or with an empty one, has an
/// [absent](super::KeyErrorKind::Absent) key; a cookie that is no UTF-8, or that is named twice
/// with different values, is [malformed](super::KeyErrorKind::Malformed).
///
/// ```
/// use http::Request;
/// use tidegate::key::Cookie;
/// use tidegate::{KeyExtractor, PeerIp};
///
/// let session = Cookie::new("sid");
/// let request = Request::builder().header("cookie", "theme=dark; sid=5e55i0n").body(())?;
/// let (head, ()) = request.into_parts();
/// assert_eq!(session.extract(&head)?, session.key("5e55i0n"));
///
/// let request = Request::builder().header("cookie", "sid=\"5e55%690n\"").body(())?;
/// let (head, ()) = request.into_parts();
/// assert_eq!(session.extract(&head)?, session.key("5e55i0n"));
///
/// // Each session, and each address without one.
/// let visitor = session.or(PeerIp);
/// # let _ = visitor;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cookie {
    name: Box<str>,
}

impl Cookie {
    /// The cookie of this name.
    ///
    /// # Panics
    ///
    /// If that is no name of a cookie: it is empty, or has other characters than letters, digits
    /// and some punctuation. Use `Cookie::try_from(name)?` for a name that is not a constant.
    #[must_use]
    #[track_caller]
    pub fn new(name: &str) -> Self {
        name.try_into().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The key of this value, which is decoded already: with or without quotes around it.
    #[must_use]
    pub fn key(&self, value: impl AsRef<[u8]>) -> Key {
        let value = value.as_ref();
        let opened = value.strip_prefix(b"\"");
        let unquoted = opened.and_then(|it| it.strip_suffix(b"\""));
        Key::default().with_secret(unquoted.unwrap_or(value))
    }

    fn malformed(&self, what: &str) -> KeyError {
        KeyError::malformed(format!("the cookie {} {what}", self.name))
    }
}

impl TryFrom<&str> for Cookie {
    type Error = KeyError;

    fn try_from(name: &str) -> Result<Self, KeyError> {
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(KeyError::server(format!("{name:?} is no name of a cookie")));
        }
        Ok(Self { name: name.into() })
    }
}

/// Whether a token of HTTP may have this character, as the names of cookies and fields are.
const fn is_token(byte: u8) -> bool {
    matches!(
        byte,
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*'
            | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
    )
}

impl KeyExtractor for Cookie {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        self.find(head)?.ok_or_else(|| {
            let message = format!("the request has no cookie {}", self.name);
            KeyError::absent(message)
        })
    }

    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        let own_name = decoded(self.name.as_bytes()).unwrap_or_default();
        // HTTP/2 may send each cookie in a field of its own.
        let fields = head.headers.get_all(COOKIE).iter();
        let pairs = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
        let mut values = pairs.filter_map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=')?;
            let is_it = decoded(&pair[..at])? == own_name;
            is_it.then(|| decoded(&pair[at + 1..]))
        });
        // Quotes around a value tell nothing apart.
        let key = |value: &Option<Cow<'_, str>>| Some(self.key(value.as_deref()?));
        match values.next() {
            Some(value) if values.any(|it| it != value && key(&it) != key(&value)) => {
                Err(self.malformed("has two values"))
            }
            Some(None) => Err(self.malformed("is no UTF-8")),
            None => Ok(None),
            Some(Some(value)) if ["", "\"\""].contains(&&*value) => Ok(None),
            Some(Some(value)) => Ok(Some(self.key(&*value))),
        }
    }

    fn mark(&self) -> Cow<'static, str> {
        format!("cookie.{}", self.name).into()
    }

    fn key_of_text(&self, text: &str) -> Option<Key> {
        Key::from_hash(text).or_else(|| Some(self.key(&*decoded(text.as_bytes())?)))
    }
}

/// A name or a value as the crate `cookie` reads it: without the blanks around it, and
/// percent-decoded. What is no escape stands for itself. `None` if it is no UTF-8.
pub(super) fn decoded(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    match text.contains('%') {
        false => Some(text.into()),
        true => String::from_utf8(percent_decoded(text.as_bytes()))
            .ok()
            .map(Cow::Owned),
    }
}
