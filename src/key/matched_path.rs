use http::request::Parts;

use super::{Key, KeyExtractor};
use crate::error::KeyError;

/// The route that axum matched, such as `/users/{id}`, as the key: each route of a router is
/// counted apart, whatever stands in its placeholders.
///
/// A layer on a router also sees requests that match no route; those share one key. On a server
/// that is not axum's all requests do.
#[derive(Debug, Clone, Copy, Default)]
pub struct MatchedPath;

impl KeyExtractor for MatchedPath {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        let key = Key::default();
        Ok(match head.extensions.get::<axum::extract::MatchedPath>() {
            Some(path) => key.with(path.as_str()),
            None => key.with_nothing(),
        })
    }
}
