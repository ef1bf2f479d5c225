//! The middleware that asks a store before the inner service runs.
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, routing::get};
//! use tidegate::{PeerIp, RateLimitLayer};
//!
//! // Each client address: at most 5 requests in any 10 seconds, in all routes of the router.
//! let limited = RateLimitLayer::new("api", Duration::from_secs(10), 5)
//!     .key(PeerIp)
//!     .degrade_fn(async |denied| {
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
//! What this crate answers by itself suits the request: HTTP requests get a problem document, gRPC
//! requests a [gRPC status](crate::callback::Problem).
//!
//! Handlers get the [`Decision`](crate::Decision) and the [`Charges`](crate::store::Charges) as
//! extractors, middleware finds both in the extensions of the request and of the response, and
//! clients read the decision from the [`Headers`]. Nothing is kept in the service itself: all
//! services that a layer makes share its settings and its store, and answers do not depend on which
//! connection asks.
//!
//! # Several layers
//!
//! A request passes the layers from the outside in: the one that was added last to a router comes
//! first. The first denial ends it, and what the layers outside of it have charged stays charged
//! ([`Charges`](crate::store::Charges) on the response can give it back). So put the limit for each
//! client outside of the limit for all clients together: a client that is denied uses up nothing of
//! the others. Authentication goes outside of a layer whose key is the user, CORS outside of
//! everything, or browsers show an error of CORS in place of the 429.
//!
//! [`Headers::Draft11`] has an item for each layer's quotas; the other fields show the tightest
//! limit of all layers. A store that gives no answer costs a request one time-out, not one for each
//! layer: for that long, later layers over the same store do not ask it. Its fallback decides, or
//! they get the same error.

// The way of a request:
//
//     RateLimit::call           rate_limit.rs        from top to bottom
//       Settings::rule          settings.rs          no rule: the inner service is called
//       Settings::take_for      settings.rs          exemption, key and cost, from the head
//       Decider::take_first     decide.rs            asks the store, and waits: a `Verdict`
//       Responder::act          responder.rs         what the verdict means: an `Action`
//     ResponseFuture::poll      response_future.rs   does it: the inner service, a callback, a response
//       Admission::finish       action.rs            the response: gives back by the outcome, and fields
//
// The layer of the locks has a `Responder` and a `ResponseFuture`, too. The inner service is called
// only after the verdict, and only the instance that was polled ready.
mod action;
mod check;
mod decide;
mod defaults;
pub(crate) mod headers;
mod inspector;
#[cfg(feature = "page")]
mod keys_let_through;
mod outage;
mod outcome;
mod rate_limit;
pub(crate) mod rate_limit_layer;
mod responder;
mod response_future;
mod settings;
mod shadow_take;
mod waiting;

#[cfg(feature = "lock")]
pub(crate) use action::Action;
pub use check::{Admitted, Check, Peek, Refused};
#[cfg(feature = "lock")]
pub(crate) use decide::Verdict;
pub(crate) use defaults::Defaults;
pub use headers::Headers;
pub(crate) use inspector::Warnings;
#[cfg(feature = "page")]
pub(crate) use keys_let_through::KeysLetThrough;
pub use rate_limit::RateLimit;
pub use rate_limit_layer::RateLimitLayer;
#[cfg(feature = "lock")]
pub(crate) use responder::Responder;
pub use response_future::ResponseFuture;
pub(crate) use settings::Settings;
