use std::any::type_name;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;

use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;
use crate::first_thousand::FirstThousand;
use crate::warning::{Warning, WarningKind};

/// What a layer outside of this one has put into the request's extensions as the key: the user that
/// it has authenticated, for example.
///
/// A request without it is a mistake of the [server](super::KeyErrorKind::Server), and is answered
/// with a 500: the layer that authenticates has to be outside of this one. As one of several
/// [alternatives](KeyExtractor::or) it is absent then, and the next one is tried.
///
/// ```
/// use http::Request;
/// use tidegate::key::Extension;
/// use tidegate::{Key, KeyExtractor, PeerIp};
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let user = Extension::<User>::new(|user| user.id);
/// let (head, ()) = Request::builder().extension(User { id: 17 }).body(())?.into_parts();
/// assert_eq!(user.extract(&head)?, Key::from(17));
///
/// // Each user, and each address of those who are not logged in.
/// let visitor = user.or(PeerIp);
/// # let _ = visitor;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Extension<T> {
    key: Arc<dyn Fn(&T) -> Key + Send + Sync>,
    /// Whether requests have it.
    seen: Arc<FirstThousand>,
}

impl<T: Send + Sync + 'static> Extension<T> {
    /// The key that the closure makes of the extension of the type `T`: a number, a text, an
    /// address or a [`Key`].
    pub fn new<K: Into<Key>>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        Self {
            key: Arc::new(move |value| key(value).into()),
            seen: Arc::default(),
        }
    }

    /// The key of this value.
    #[must_use]
    pub fn key(&self, value: &T) -> Key {
        (self.key)(value)
    }
}

/// The name of a type, without its path and its parameters.
fn short_name<T>() -> &'static str {
    let name = type_name::<T>();
    let name = name.split_once('<').map_or(name, |(name, _)| name);
    name.rsplit_once("::").map_or(name, |(_, name)| name)
}

impl<T: Send + Sync + 'static> KeyExtractor for Extension<T> {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        self.find(head)?.ok_or_else(|| {
            KeyError::server(format!(
                "the request has no extension {}: put the layer that inserts it outside of this \
                 one, or say what counts without it with or(..)",
                short_name::<T>()
            ))
        })
    }

    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        let value = head.extensions.get();
        self.seen.note(value.is_some());
        Ok(value.map(|value| self.key(value)))
    }

    fn mark(&self) -> Cow<'static, str> {
        format!("extension.{}", short_name::<T>()).into()
    }

    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        let is_without = !fields.is_empty() && self.seen.is_without();
        let warning = || Warning::with_name(WarningKind::NeverSeen, short_name::<T>());
        is_without.then(|| warning().second())
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        let (key, seen) = (Arc::clone(&self.key), Arc::clone(&self.seen));
        Self { key, seen }
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", short_name::<T>())
    }
}
