//! The middleware that asks a store before the inner service runs.
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, routing::get};
//! use tidegate::{Denied, PeerIp, RateLimitLayer};
//!
//! // Each client address: at most 5 requests in any 10 seconds, in all routes of the router.
//! let limited = RateLimitLayer::new("api", Duration::from_secs(10), 5)
//!     .key(PeerIp)
//!     .degrade(async |denied: Denied| {
//!         format!("come back in {:?}", denied.decision.retry_after())
//!     });
//! let app: Router = Router::new()
//!     .route("/a", get(|| async { "a" }))
//!     .route("/b", get(|| async { "b" }))
//!     .layer(limited);
//! # let _ = app;
//! ```
//!
//! For each request, [`RateLimit`], the service that a [`RateLimitLayer`] makes,
//!
//! 1. finds the rule of its path; without a rule it calls the inner service,
//! 2. extracts the key and computes the cost from the request's head,
//! 3. asks the store, exactly once unless the request [waits](RateLimitLayer::wait),
//! 4. calls the inner service, or answers by the degrade callback if the store denied the request,
//!    or by the error callback if there is no decision.
//!
//! The inner service and the client find the [`Decision`](crate::Decision) and the
//! [`Charges`](crate::store::Charges) in the extensions of the request and of the response, and
//! clients read it from the [`Headers`]. Nothing is kept in the service itself: all
//! services that a layer makes share its settings and its store, and answers do not depend on which
//! connection asks.

mod events;
pub(crate) mod headers;
mod question;
mod rate_limit;
pub(crate) mod rate_limit_layer;
mod settings;

pub(crate) use headers::Headers;
pub use rate_limit::RateLimit;
pub(crate) use rate_limit_layer::RateLimitLayer;

pub use crate::admission::ResponseFuture;
