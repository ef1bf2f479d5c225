use http::HeaderName;
use http::request::Parts;

use super::{Key, KeyExtractor};
use crate::error::KeyError;

/// Fields whose values open doors: never kept readable.
const SECRET: [&str; 8] = [
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
/// share one key, unless it is [required](Header::required).
///
/// The values of `Authorization`, `Cookie`, `X-Api-Key` and their like are kept as a hash; for
/// others that are secret, say so with [`Header::secret`].
///
/// A client chooses its header fields freely. Limit by one only if something in front of this
/// service has checked it, or join it with an address.
///
/// ```
/// use tidegate::Header;
///
/// let tenant = Header::new(http::HeaderName::from_static("x-tenant"));
/// # let _ = tenant;
/// ```
#[derive(Debug, Clone)]
pub struct Header {
    name: HeaderName,
    secret: bool,
    required: bool,
}

impl Header {
    /// The field of this name.
    #[must_use]
    pub fn new(name: HeaderName) -> Self {
        Self {
            secret: SECRET.contains(&name.as_str()),
            name,
            required: false,
        }
    }

    /// Keeps the value as a hash only.
    #[must_use]
    pub fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Makes a request without the field a [`KeyError`] of the kind
    /// [`Client`](crate::key::KeyErrorKind::Client), for the error callbacks to answer.
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
        let mut value = first.as_bytes().to_vec();
        for line in lines {
            // No line holds a line feed, so lines cannot be mistaken for one another.
            value.push(b'\n');
            value.extend_from_slice(line.as_bytes());
        }
        Ok(match self.secret {
            false => key.with(value),
            true => key.with_secret(value),
        })
    }
}
