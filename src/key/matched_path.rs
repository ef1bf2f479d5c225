use std::borrow::Cow;

use http::request::Parts;

use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;

/// The route that axum matched, such as `/users/{id}`, as the key: requests of one route are
/// counted together, whatever their parameters are.
///
/// A layer on a router also sees requests that match no route. Those share one key, as do all
/// requests on a server that is not axum's; so no [alternative](KeyExtractor::or) behind this one
/// is tried.
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

impl MatchedPath {
    /// The key of requests that match this route.
    #[must_use]
    pub fn key(&self, route: &str) -> Key {
        route.into()
    }
}

impl KeyExtractor for MatchedPath {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        Ok(match head.extensions.get::<axum::extract::MatchedPath>() {
            Some(path) => self.key(path.as_str()),
            None => Key::default().with_nothing(),
        })
    }

    fn mark(&self) -> Cow<'static, str> {
        "matched-path".into()
    }
}
