use std::sync::Arc;

use http::request::Parts;

use super::Key;
use crate::error::KeyError;

/// Tells who is asking, from a request's head.
///
/// Closures are extractors too. A panic inside one is answered with a 500 and harms nothing else.
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
    /// [`KeyError`] if the head does not say who is asking, with [whose mistake](KeyError::kind)
    /// that is. It goes to the error callbacks; the request is neither charged nor denied.
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

/// Nobody in particular: all requests of a path are counted together. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct PathOnly;

impl KeyExtractor for PathOnly {
    fn extract(&self, _: &Parts) -> Result<Key, KeyError> {
        Ok(Key::default())
    }
}
