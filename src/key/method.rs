use std::borrow::Cow;

use http::request::Parts;

use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;

/// The request's method as the key: `GET` and `POST` are counted apart.
///
/// A client may send methods that nobody knows, each with a fresh limit: join this with another
/// key where the handler answers all of them.
///
/// ```
/// use std::time::Duration;
/// use tidegate::key::Method;
/// use tidegate::{PeerIp, RateLimitLayer};
///
/// // Each address: at most 20 requests of each method in any second.
/// let layer = RateLimitLayer::new("api", Duration::from_secs(1), 20).key((PeerIp, Method));
/// assert_eq!(Method.key(&http::Method::GET).as_str(), "GET");
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Method;

impl Method {
    /// The key of requests with this method.
    #[must_use]
    pub fn key(&self, method: &http::Method) -> Key {
        method.as_str().into()
    }
}

impl KeyExtractor for Method {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        Ok(self.key(&head.method))
    }

    fn mark(&self) -> Cow<'static, str> {
        "method".into()
    }
}
