//! Rate limiting for axum, tonic and every tower service. In memory for one process; with Redis,
//! one exact limit for all of them.
//!
//! ```no_run
//! use std::{net::SocketAddr, time::Duration};
//! use axum::{Router, routing::post};
//! use tidegate::{PeerIp, RateLimitLayer};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Each client address: at most 5 logins in any minute.
//!     let limited = RateLimitLayer::new("login", Duration::from_secs(60), 5).key(PeerIp);
//!     let app = Router::new().route("/login", post(async || "welcome").layer(limited));
//!     // `PeerIp` reads the address from axum's connect info. Behind a proxy, use `ClientIp`.
//!     let app = app.into_make_service_with_connect_info::<SocketAddr>();
//!     Ok(axum::serve(tokio::net::TcpListener::bind("0.0.0.0:3000").await?, app).await?)
//! }
//! ```
//!
//! For several processes, give the layer a store on Redis:
//! `.store(Resilient::redis("redis://127.0.0.1:6379", "shop")?.processes(4))`. See [`Resilient`].
//!
//! Before the handler runs, a [`Store`] decides whether the request still fits: [`RedisStore`] for
//! a whole fleet, by one Lua script and Redis's clock, or [`MemoryStore`] for one process. A
//! [`DegradeCallback`] answers a denied request. An [`ErrorCallback`] answers a request for which
//! no decision could be made. Without these, clients get a 429 or a 503 with a problem document:
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tidegate::RateLimitLayer;
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // At most 2 requests in any 10 seconds.
//! let limited = RateLimitLayer::new("getId", Duration::from_secs(10), 2);
//! let app: Router = Router::new().route("/getId", get(|| async { "1" }).layer(limited));
//!
//! for expected in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
//!     let request = Request::get("/getId").body(Body::empty())?;
//!     let response = app.clone().oneshot(request).await?;
//!     assert_eq!(response.status(), expected);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! The module [`guide`] has a cookbook, a checklist for production, troubleshooting and other
//! guides.
//!
//! | to | use | more in |
//! |---|---|---|
//! | wrap a handler | [`RateLimitLayer`]; by path, from a file: [`Limits`] | [`layer`], [`config`] |
//! | say what is limited | [`Quota`], [`Rule`], [`Rules`] | [`rule`] |
//! | say who is counted together | [`KeyExtractor`]: [`PeerIp`], [`ClientIp`], [`Header`], [`MatchedPath`], tokens, cookies, users, closures; several by tuples and [`or`](KeyExtractor::or) | [`key`] |
//! | keep the counts | [`Store`]: [`MemoryStore`], [`RedisStore`] | [`store`], [`redis`] |
//! | go on when the store fails | [`Resilient`] | [`store`] |
//! | replace the rules of a file while requests run | `Limits::watch`, `Limits::reload` | [`live`] |
//! | read a decision | [`Decision`]; for clients: [`Headers`] | [`decision`] |
//! | answer instead of the handler | [`DegradeCallback`], [`ErrorCallback`], [`ErrorCallbackChain`], [`FailOpen`] | [`callback`] |
//! | limit a function: a job, a method, a handler | [`Limits::call`]; as an attribute: `#[limited]` (feature `macros`) | [`layer::Call`] |
//! | limit a gRPC service | [`RateLimitLayer`]: gRPC requests get gRPC answers; [`PeerIp::peer`] | [`guide::grpc`] |
//! | find mistakes in the set-up | [`Limits::warnings`], [`Limits::verify`] | [`warning`] |
//! | see what is counted | [`Limits::snapshot`]; for Prometheus and others: `Limits::publish_metrics_every_second` | [`metrics`] |
//! | show customers what they have left | [`Limits::usage`] | [`limits`] |
//! | let a customer through, block one, raise its limits | [`Limits::let_through`], [`Limits::block`], [`Limits::raise`] | [`limits`] |
//! | see who is limited now | `Limits::page` | [`page`] |
//! | choose how requests are counted | [`Algorithm`] | [`algorithm`] |
//! | wait for permits in code | `RateLimiter` | [`limiter`] |
//! | let so many run at a time, in the whole fleet | [`Rule::with_max_concurrent`]; in code: `Lock` | [`rule`], [`lock`] |
//!
//! # When a request is charged
//!
//! The decision that allows a request charges it to all quotas of its rule together, and a denied
//! request is charged nothing; [`guide::guarantees`] has the rare cases. A request stays charged if
//! its handler fails, unless [`Rule::with_refund_on`] or [`RateLimitLayer::refund_if`] says
//! otherwise, or the handler gives it back: [`Charges`](store::Charges).
//!
//! # The order of layers
//!
//! CORS and authentication go outside of this layer, the limit for each client outside of the limit
//! for all: [`layer`]. A layer on a `Router` also sees requests that match no route; a
//! `route_layer` does not.
//!
//! # Features
//!
//! - `axum` (default): axum's `ConnectInfo` as the peer's address, `MatchedPath` as a key;
//! - `config` (default): rules from TOML;
//! - `redis` (default): `RedisStore`;
//! - `calendar`: time zones of quotas by the calendar, which are in UTC without it;
//! - `limiter`: `RateLimiter`, a budget that code asks for permits and waits for, in memory, and
//!   with `redis` for a fleet;
//! - `lock`: `Lock`;
//! - `cluster`: Redis Cluster;
//! - `sentinel`: a master that Redis Sentinel looks after;
//! - `tls`: `rediss://` addresses;
//! - `tracing` (default): warnings when decisions begin to fail and when they are made again, an
//!   error when a callback panicked, events when a file is reloaded or refused, a debug event for
//!   each denial, a summary of a rule's denials at most every 10 s, and the span `tidegate.take`
//!   around the store's call;
//! - `metrics`: what layers count, published once per second for Prometheus and others;
//! - `page`: a page that shows who is limited now, with buttons for what operators do by code;
//! - `macros`: the attribute `#[limited]` for async functions, methods and impl blocks;
//! - `test-util`: `ManualClock`, a clock that tests move by hand;
//! - `full`: all of these.
//!
#![cfg_attr(not(feature = "full"), doc = include_str!("absent_links.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod activity;
pub mod algorithm;
mod base64;
pub mod callback;
mod charge;
#[cfg(feature = "config")]
pub mod config;
pub mod decision;
mod error;
mod fleet;
// Their examples need all features.
mod factor;
mod first_thousand;
#[cfg(any(not(doctest), feature = "full"))]
pub mod guide;
pub mod key;
pub mod layer;
pub mod limits;
#[cfg(feature = "config")]
pub mod live;
pub mod metrics;
mod outgoing;
#[cfg(feature = "page")]
pub mod page;
mod question;
mod quota;
#[cfg(feature = "redis")]
pub mod redis;
pub mod rule;
pub mod store;
mod summed_log;
mod take;
#[cfg(feature = "test-util")]
pub mod test_util;
mod trace;
mod waiting;
pub mod warning;

#[cfg(feature = "limiter")]
#[doc(inline)]
pub use tidegate_redisson::limiter;
#[cfg(feature = "lock")]
#[doc(inline)]
pub use tidegate_redisson::lock;

#[cfg(feature = "redis")]
use tidegate_base::connection;
#[cfg(feature = "config")]
use tidegate_base::regular_file;
use tidegate_base::{
    clock, deadline, in_flight_counter, jitter, log_on_change, named, swept_map, sync, unawaited,
    unseen,
};

pub use algorithm::Algorithm;
pub use callback::{DegradeCallback, Denied};
pub use callback::{ErrorCallback, ErrorCallbackChain, FailOpen, Failed, Recovery};
pub use decision::Decision;
pub use error::{KindError, StoreError};
#[cfg(feature = "axum")]
pub use key::MatchedPath;
pub use key::{ClientIp, Header, Key, KeyExtractor, PeerIp};
pub use layer::{Headers, RateLimitLayer};
pub use limits::Limits;
#[cfg(feature = "page")]
pub use page::Page;
pub use quota::Quota;
#[cfg(feature = "redis")]
pub use redis::Redis;
pub use rule::{Rule, Rules};
#[cfg(feature = "redis")]
pub use store::RedisStore;
pub use store::{MemoryStore, Resilient, Store};
pub use take::Take;
/// A function that a rule limits, as [`Limits::call`] does it by hand.
#[cfg(feature = "macros")]
pub use tidegate_macros::limited;

/// What `#[limited]` expands to, beside what is public.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod __private {
    pub use axum_core::response::{IntoResponse, Response};

    use crate::layer::{CallError, Refused};
    use crate::{Denied, Failed};

    /// This callback, whose types are known.
    pub fn degrade<T, F: AsyncFnOnce(Denied) -> T>(callback: F) -> F {
        callback
    }

    /// This callback, whose types are known.
    pub fn on_error<T, F: AsyncFnOnce(Failed) -> T>(callback: F) -> F {
        callback
    }

    /// What a function that may fail has returned, unless it was refused.
    pub fn returned<V, E>(done: Result<V, CallError<E>>) -> Result<Result<V, E>, Refused> {
        match done {
            Ok(value) => Ok(Ok(value)),
            Err(CallError::Inner(error)) => Ok(Err(error)),
            Err(CallError::Denied(refused) | CallError::Failed(refused)) => Err(refused),
        }
    }
}

/// The examples of the README, compiled.
#[cfg(all(
    doctest,
    feature = "axum",
    feature = "config",
    feature = "macros",
    feature = "redis"
))]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

/// The same of the page on the algorithms, whose pictures are in the repository.
#[cfg(doctest)]
#[doc = include_str!("../docs/algorithms.md")]
struct AlgorithmsDoctests;
