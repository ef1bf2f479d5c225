use std::sync::Arc;

use http::request::Parts;

use super::key::Key;
use crate::error::KeyError;

/// Makes the key of a request from its head.
///
/// Closures are extractors, too. A panic inside an extractor is answered with a 500 and affects no
/// other request.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Key, RateLimitLayer};
///
/// let layer = RateLimitLayer::new("search", Duration::from_secs(1), 10)
///     .key(|head: &http::request::Parts| {
///         let user = head.headers.get("x-user").map_or(&b""[..], |user| user.as_bytes());
///         Ok(Key::default().with(user))
///     });
/// # let _ = layer;
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of the request with this head.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the head lacks what the key is made of. Its [kind](KeyError::kind) says
    /// whether that is the client's mistake or the server's. The error goes to the error callbacks;
    /// the request is neither charged nor denied.
    fn extract(&self, head: &Parts) -> Result<Key, KeyError>;
}

impl<F> KeyExtractor for F
where
    F: Fn(&Parts) -> Result<Key, KeyError> + Send + Sync + 'static,
{
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        self(head)
    }
}

impl<T: KeyExtractor + ?Sized> KeyExtractor for Arc<T> {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        T::extract(self, head)
    }
}
