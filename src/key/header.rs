use std::borrow::Cow;

use http::HeaderName;
use http::request::Parts;

use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;

/// Fields that carry credentials. Their values are stored as hashes only.
const CREDENTIALS: [&str; 8] = [
    "api-key",
    "authorization",
    "cookie",
    "proxy-authorization",
    "x-access-token",
    "x-api-key",
    "x-auth-token",
    "x-csrf-token",
];

/// The value of a header field as the key.
///
/// Several lines of the field count as one value, in their order. All requests without the field
/// share one key, unless the field is [required](Header::required).
///
/// The values of `Api-Key`, `Authorization`, `Cookie`, `Proxy-Authorization`, `X-Access-Token`,
/// `X-Api-Key`, `X-Auth-Token` and `X-Csrf-Token` are stored as a hash. Use [`Header::secret`] for
/// other fields with secret values.
///
/// # Trust
///
/// A client chooses its header fields freely, and with another value in each request it has a fresh
/// limit each time. Limit by a field only if a proxy has checked it, or join it with an address.
///
/// ```
/// use http::HeaderName;
/// use tidegate::{Header, PeerIp};
///
/// let tenant = Header::new(HeaderName::from_static("x-tenant")).required();
/// // As a key of two parts, with the address of the client.
/// let key = (PeerIp, tenant);
/// # let _ = key;
/// ```
#[derive(Debug, Clone)]
pub struct Header {
    name: HeaderName,
    secret: bool,
    required: bool,
}

impl Header {
    /// The value of the field with this name.
    #[must_use]
    pub fn new(name: HeaderName) -> Self {
        Self {
            secret: CREDENTIALS.contains(&name.as_str()),
            name,
            required: false,
        }
    }

    /// Stores the value as a hash only. Default: only for fields that carry credentials.
    #[must_use]
    pub fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Fails for a request without the field, with a [`KeyError`] of the kind
    /// [`Client`](crate::key::KeyErrorKind::Client). Default: such requests share one key.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

impl KeyExtractor for Header {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        let mut lines = head.headers.get_all(&self.name).iter();
        let key = Key::default();
        let Some(first) = lines.next() else {
            return match self.required {
                false => Ok(key.with_nothing()),
                true => Err(KeyError::client(format!(
                    "the request has no {} header field",
                    self.name
                ))),
            };
        };
        let mut value = Cow::Borrowed(first.as_bytes());
        for line in lines {
            // No line holds a line feed, so lines cannot be mistaken for one another.
            value.to_mut().push(b'\n');
            value.to_mut().extend_from_slice(line.as_bytes());
        }
        Ok(match self.secret {
            false => key.with(value),
            true => key.with_secret(value),
        })
    }
}
