use std::borrow::Cow;
use std::fmt;

use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName};

use super::host::host;
use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;
use crate::warning::Warning;

/// Fields that carry credentials. Their values are stored as hashes only.
const CREDENTIALS: &str = "api-key authorization cookie proxy-authorization x-access-token \
     x-api-key x-auth-token x-csrf-token";

/// Parts of the names of fields that clients make up: who guesses sends another one each time.
const MADE_UP: &str = "session -sid token device csrf xsrf request-id fingerprint user-agent trace \
     nonce idempotency password otp forwarded real-ip connecting-ip";

/// The value of a header field as the key. A field that nobody has verified is a way around the
/// limit: with a fresh value in each request, a client has a fresh limit each time.
///
/// So limit by a field only if a proxy or a layer outside of this one has checked it, or
/// [join](crate::key) it with an address.
///
/// One key is one value, byte by byte, without the blanks around it. A request without the field
/// has an [absent](super::KeyErrorKind::Absent) key, and is answered with a 400; so has one with an
/// empty value that would be stored as a hash. Where all requests without it are to share one key,
/// say `.or(Everyone)`. A field that is there twice, with different values, is
/// [malformed](super::KeyErrorKind::Malformed): the caller that checked it may have read either.
///
/// `Host` is read as [`Host`](super::Host) reads it, since HTTP/2 has no such field.
///
/// The values of `Api-Key`, `Authorization`, `Cookie`, `Proxy-Authorization`, `X-Access-Token`,
/// `X-Api-Key`, `X-Auth-Token` and `X-Csrf-Token` are stored as a hash. Use [`Header::secret`] for
/// other fields with secret values.
///
/// ```
/// use tidegate::key::Everyone;
/// use tidegate::{Header, KeyExtractor, PeerIp};
///
/// let tenant = Header::new("x-tenant");
/// assert_eq!(tenant.key("acme").as_str(), "acme");
/// // As a key of two parts, with the address of the client.
/// let joined = (PeerIp, tenant.clone());
/// // All requests without the field share one key.
/// let shared = tenant.or(Everyone);
/// # let _ = (joined, shared);
/// ```
#[derive(Debug, Clone)]
pub struct Header {
    name: HeaderName,
    secret: bool,
}

impl Header {
    /// The value of the field with this name: a text, in upper or lower case, or a [`HeaderName`].
    ///
    /// # Panics
    ///
    /// If the text is no name of a header field. Parse a name that is not a constant first:
    /// `Header::new(name.parse::<HeaderName>()?)`.
    #[must_use]
    #[track_caller]
    pub fn new(name: impl TryInto<HeaderName, Error: fmt::Display>) -> Self {
        let name = name.try_into().unwrap_or_else(|error| panic!("{error}"));
        Self {
            secret: CREDENTIALS.split(' ').any(|known| name == known),
            name,
        }
    }

    /// Stores the value as a hash only. Default: only for fields that carry credentials.
    #[must_use]
    pub fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// The key of this value.
    #[must_use]
    pub fn key(&self, value: impl AsRef<[u8]>) -> Key {
        if self.secret {
            Key::default().with_secret(value)
        } else {
            Key::default().with(value)
        }
    }
}

impl KeyExtractor for Header {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        self.find(head)?.ok_or_else(|| {
            let message = format!("the request has no {} header field", self.name);
            KeyError::absent(message)
        })
    }

    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        if self.name == HOST {
            return Ok(host(head)?.map(|host| self.key(host)));
        }
        // An empty credential says as little of who asks as none.
        let value = value(head, &self.name)?.filter(|it| !(self.secret && it.is_empty()));
        Ok(value.map(|value| self.key(value)))
    }

    fn mark(&self) -> Cow<'static, str> {
        format!("header.{}", self.name).into()
    }

    fn key_of_text(&self, text: &str) -> Option<Key> {
        if !self.secret && text.contains('%') {
            Key::from_text(text)
        } else {
            Key::from_hash(text).or_else(|| Some(self.key(text)))
        }
    }

    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        let has_word = MADE_UP.split(' ').any(|it| self.name.as_str().contains(it));
        let is_guess = self.secret || self.name == HOST || has_word;
        (is_guess && fields.is_empty()).then(|| Warning::of_guesses(&self.mark()))
    }
}

/// The value of a field, without the blanks around it, which HTTP/2 may leave. Equal lines are one.
pub(super) fn value<'a>(head: &'a Parts, name: &HeaderName) -> Result<Option<&'a [u8]>, KeyError> {
    let lines = head.headers.get_all(name).iter();
    let mut lines = lines.map(|line| line.as_bytes().trim_ascii());
    let value = lines.next();
    if lines.any(|line| Some(line) != value) {
        let message = format!("the request has two {name} header fields");
        return Err(KeyError::malformed(message));
    }
    Ok(value)
}

/// What follows in `Authorization` behind this scheme, in any case, without the blanks around it;
/// `None` if there is nothing, or another scheme.
pub(super) fn credentials<'a>(
    head: &'a Parts,
    scheme: &[u8],
) -> Result<Option<&'a [u8]>, KeyError> {
    let field = value(head, &AUTHORIZATION)?.unwrap_or_default();
    let end = field.iter().position(|byte| b" \t".contains(byte));
    let (own, credentials) = field.split_at(end.unwrap_or(field.len()));
    let credentials = Some(credentials.trim_ascii()).filter(|it| !it.is_empty());
    Ok(credentials.filter(|_| own.eq_ignore_ascii_case(scheme)))
}
