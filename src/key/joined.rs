use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;

use super::key::Key;
use super::key_extractor::{Everyone, KeyExtractor};
use crate::error::KeyError;
use crate::warning::{Warning, WarningKind};

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
///     Arc::new(Header::new("x-tenant")),
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

    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        find_all(self.0.iter().map(|extractor| extractor.find(head)))
    }

    fn mark(&self) -> Cow<'static, str> {
        // Parts that are the same in all requests make a key that is.
        let other = self.0.iter().find(|it| it.mark() != Everyone.mark());
        other.map_or(Everyone.mark(), |_| MARK.into())
    }

    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        warning_of(self.0.iter().map(|it| &**it), fields)
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined({} extractors)", self.0.len())
    }
}

const MARK: &str = "joined";

/// The joined key; `None` if a part is absent. A part that is malformed is an error nevertheless.
fn find_all(
    parts: impl Iterator<Item = Result<Option<Key>, KeyError>>,
) -> Result<Option<Key>, KeyError> {
    let mut joined = Some(Key::default());
    for part in parts {
        joined = joined.zip(part?).map(|(key, part)| key.join(&part));
    }
    Ok(joined)
}

/// The worst mistake of a part. Beside who is guessed an address is none.
fn warning_of<'a>(
    mut parts: impl Iterator<Item = &'a dyn KeyExtractor> + Clone,
    fields: &HeaderMap,
) -> Option<Warning> {
    let found = parts.clone().filter_map(|it| it.warning(fields));
    let found = found.min_by_key(|it| it.is_second)?;
    let is_of_address = found.kind == WarningKind::LockoutOfGuesses && found.is_second;
    let is_name = |it: &str| ["basic-user", "custom"].contains(&it) || it.starts_with("extension.");
    (!is_of_address || !parts.any(|it| is_name(&it.mark()))).then_some(found)
}

macro_rules! impl_for_tuple {
    ($($extractor:ident),+) => {
        impl<$($extractor: KeyExtractor),+> KeyExtractor for ($($extractor,)+) {
            fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
                #[allow(non_snake_case)]
                let ($($extractor,)+) = self;
                Ok(Key::default()$(.join(&$extractor.extract(head)?))+)
            }

            fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
                #[allow(non_snake_case)]
                let ($($extractor,)+) = self;
                find_all([$($extractor.find(head)),+].into_iter())
            }

            fn mark(&self) -> Cow<'static, str> {
                MARK.into()
            }

            fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
                #[allow(non_snake_case)]
                let ($($extractor,)+) = self;
                warning_of([$($extractor as &dyn KeyExtractor),+].into_iter(), fields)
            }
        }
    };
}

impl_for_tuple!(A, B);
impl_for_tuple!(A, B, C);
impl_for_tuple!(A, B, C, D);
