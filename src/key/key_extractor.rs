use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;

use super::key::Key;
use crate::error::KeyError;
use crate::warning::Warning;

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

    /// A mistake in the set-up that a request with these fields shows; see [`Warning`]. An
    /// extractor around another one passes the question on. Default: `None`.
    fn warning(&self, _fields: &HeaderMap) -> Option<Warning> {
        None
    }
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

    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        T::warning(self, fields)
    }
}

/// A list of extractors. The parts of their keys, in the order of the list, make one key.
///
/// Tuples of two to four extractors do the same. Use this for a list that is known only at run
/// time.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::{Header, PeerIp};
/// use tidegate::key::Joined;
///
/// let key = Joined::new([
///     Arc::new(PeerIp) as Arc<dyn tidegate::KeyExtractor>,
///     Arc::new(Header::new(http::HeaderName::from_static("x-tenant"))),
/// ]);
/// # let _ = key;
/// ```
#[derive(Clone)]
pub struct Joined(Box<[Arc<dyn KeyExtractor>]>);

impl Joined {
    /// An extractor that joins the keys of these.
    pub fn new(extractors: impl IntoIterator<Item = Arc<dyn KeyExtractor>>) -> Self {
        Self(extractors.into_iter().collect())
    }
}

impl KeyExtractor for Joined {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        self.0.iter().try_fold(Key::default(), |key, extractor| {
            Ok(key.join(&extractor.extract(head)?))
        })
    }

    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        self.0
            .iter()
            .find_map(|extractor| extractor.warning(fields))
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined({} extractors)", self.0.len())
    }
}

macro_rules! impl_for_tuple {
    ($($extractor:ident),+) => {
        impl<$($extractor: KeyExtractor),+> KeyExtractor for ($($extractor,)+) {
            fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
                #[allow(non_snake_case)]
                let ($($extractor,)+) = self;
                Ok(Key::default()$(.join(&$extractor.extract(head)?))+)
            }

            fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
                #[allow(non_snake_case)]
                let ($($extractor,)+) = self;
                None$(.or_else(|| $extractor.warning(fields)))+
            }
        }
    };
}

impl_for_tuple!(A, B);
impl_for_tuple!(A, B, C);
impl_for_tuple!(A, B, C, D);

/// The empty key: all requests of a path are counted together. The default of every rule.
#[derive(Debug, Clone, Copy, Default)]
pub struct PathOnly;

impl KeyExtractor for PathOnly {
    fn extract(&self, _: &Parts) -> Result<Key, KeyError> {
        Ok(Key::default())
    }
}
