use std::borrow::Cow;

use http::request::Parts;

use super::header::credentials;
use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;

/// The bearer token as the key. A token that nobody has verified is a way around the limit: with a
/// fresh token in each request, a client has a fresh limit each time.
///
/// So put the layer behind what verifies tokens, or [join](crate::key) the token with an address.
///
/// The token is what follows in `Authorization` behind the scheme `Bearer`, in any case, without
/// the blanks around it. One key is one token, byte by byte; where what verifies tokens accepts
/// several spellings of one, count by what it found, with an [`Extension`](super::Extension).
///
/// The token is stored as a hash. Another scheme, an empty token, or no such field, is an
/// [absent](super::KeyErrorKind::Absent) key. A second field that differs, and a token with blanks or
/// other characters than visible ASCII are [malformed](super::KeyErrorKind::Malformed): junk beside a
/// valid token must not escape its limit.
///
/// ```
/// use std::time::Duration;
/// use http::Request;
/// use tidegate::key::Bearer;
/// use tidegate::{KeyExtractor, PeerIp, RateLimitLayer};
///
/// // Each token: at most 100 requests in any minute. Each address, without a token: as many.
/// let layer = RateLimitLayer::new("api", Duration::from_secs(60), 100).key(Bearer.or(PeerIp));
///
/// let request = Request::builder().header("authorization", "bearer t0ken").body(())?;
/// let (head, ()) = request.into_parts();
/// assert_eq!(Bearer.extract(&head)?, Bearer.key("t0ken"));
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Bearer;

impl Bearer {
    /// The key of this token.
    #[must_use]
    pub fn key(&self, token: impl AsRef<[u8]>) -> Key {
        Key::default().with_secret(token)
    }
}

impl KeyExtractor for Bearer {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        self.find(head)?
            .ok_or_else(|| KeyError::absent("the request has no bearer token"))
    }

    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        match credentials(head, b"bearer")? {
            None => Ok(None),
            // A handler that verifies it may read only up to a blank.
            Some(token) if !token.iter().all(u8::is_ascii_graphic) => Err(KeyError::malformed(
                "the bearer token has blanks or other characters than visible ASCII",
            )),
            Some(token) => Ok(Some(self.key(token))),
        }
    }

    fn mark(&self) -> Cow<'static, str> {
        "bearer".into()
    }

    fn key_of_text(&self, text: &str) -> Option<Key> {
        Key::from_hash(text).or_else(|| Some(self.key(text)))
    }
}
