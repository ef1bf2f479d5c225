use http::request::Parts;

use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;

/// The route that axum matched, such as `/users/{id}`, as the key: requests of one route are
/// counted together, whatever their parameters are.
///
/// A layer on a router also sees requests that match no route. Those share one key, as do all
/// requests on a server that is not axum's.
///
/// ```
/// use axum::{Router, routing::get};
/// use std::time::Duration;
/// use tidegate::{MatchedPath, RateLimitLayer};
///
/// // Each route of its own: at most 100 requests in any second.
/// let layer = RateLimitLayer::new("api", Duration::from_secs(1), 100).key(MatchedPath);
/// let app: Router = Router::new()
///     .route("/users/{id}", get(|| async { "a user" }))
///     .route("/orders/{id}", get(|| async { "an order" }))
///     .layer(layer);
/// # let _ = app;
/// ```
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
