//! Rate limiting for tower and axum services that run in more than one process.
//!
//! A [`RateLimitLayer`] wraps a handler. Before it runs, a [`Store`] decides whether the request still
//! fits: [`RedisStore`] for a whole fleet, by one Lua script and Redis's clock, or
//! [`MemoryStore`] for one process. A denied request gets a [`DegradeCallback`] instead of the handler; one for
//! which no decision could be made, an [`ErrorCallback`].
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
//! | | |
//! |---|---|
//! | wrap a handler | [`RateLimitLayer`]; by path, from a file: [`Limits`] |
//! | what is limited | [`Quota`], [`Rule`], [`Rules`]; as TOML: [`config`] |
//! | who is counted together | [`KeyExtractor`]: [`PathOnly`], [`PeerIp`], [`ClientIp`], [`Header`], [`MatchedPath`], closures, tuples |
//! | where it is counted | [`Store`]: [`MemoryStore`], [`RedisStore`]; one server, a cluster or behind sentinels: [`RedisAddress`] |
//! | what if that fails | [`Resilient`]: [`Fallback`], [`CircuitBreaker`], [`InFlight`], [`Timeout`]; [`OnError`] by rule |
//! | what a decision says | [`Decision`], and [`Headers`] for clients |
//! | what answers instead | [`DegradeCallback`], [`ErrorCallback`], [`ErrorCallbackChain`], [`FailOpen`] |
//! | one at a time, in the whole fleet | [`Lock`], [`ExclusiveLayer`] |
//! | what code asks by itself | [`RateLimiter`], that waits for permits; [`Lock`], and [`ExclusiveLayer`] around a handler |
//! | how it is counted | [`Algorithm`]: [`SlidingLog`], [`SlidingWindow`], [`Gcra`], [`FixedWindow`]; without a store: [`Count`] |
//!
//! # When a request is charged
//!
//! At the decision that allows it, to all quotas of its rule at once; a denied request is charged
//! nothing. A request whose decision timed out is charged only where Redis had decided in time and the answer was lost or late;
//! one whose future was dropped while the store was asked may have been. Nothing is refunded by itself if the handler fails; [`Store::refund`] gives
//! back what a [`Decision`]'s [`Token`] was charged.
//!
//! # The order of layers
//!
//! A 429 needs CORS fields to be readable by a browser: put the CORS layer outside of this one, or
//! exempt preflights with [`RateLimitLayer::exempt`]. A layer on a `Router` also sees requests that match
//! no route; a `route_layer` does not.
//!
//! # Features
//!
//! - `axum` (default): axum's `ConnectInfo` as the peer's address, `MatchedPath` as a key;
//! - `config` (default): rules from TOML;
//! - `redis` (default): `RedisStore`;
//! - `limiter`: `RateLimiter`, a budget that code asks for permits and waits for, in memory, and with
//!   `redis` for a fleet;
//! - `lock`: `Lock` and `ExclusiveLayer`;
//! - `cluster`: Redis Cluster;
//! - `sentinel`: a master that Redis Sentinel looks after;
//! - `tls`: `rediss://` addresses;
//! - `tracing`: events when decisions begin to fail, are made again, and when a callback panicked;
//! - `test-util`: `ManualClock`, a clock that tests move by hand;
//! - `full`: all of these.
//!
#![cfg_attr(feature = "axum", doc = "[`MatchedPath`]: crate::MatchedPath")]
#![cfg_attr(feature = "config", doc = "[`config`]: crate::config")]
#![cfg_attr(feature = "redis", doc = "[`RedisStore`]: crate::RedisStore")]
#![cfg_attr(feature = "redis", doc = "[`RedisAddress`]: crate::RedisAddress")]
#![cfg_attr(feature = "limiter", doc = "[`RateLimiter`]: crate::RateLimiter")]
#![cfg_attr(feature = "lock", doc = "[`Lock`]: crate::Lock")]
#![cfg_attr(feature = "lock", doc = "[`ExclusiveLayer`]: crate::ExclusiveLayer")]
#![cfg_attr(
    not(feature = "axum"),
    doc = "[`MatchedPath`]: https://docs.rs/tidegate"
)]
#![cfg_attr(not(feature = "config"), doc = "[`config`]: https://docs.rs/tidegate")]
#![cfg_attr(
    not(feature = "redis"),
    doc = "[`RedisStore`]: https://docs.rs/tidegate"
)]
#![cfg_attr(
    not(feature = "redis"),
    doc = "[`RedisAddress`]: https://docs.rs/tidegate"
)]
#![cfg_attr(
    not(feature = "limiter"),
    doc = "[`RateLimiter`]: https://docs.rs/tidegate"
)]
#![cfg_attr(not(feature = "lock"), doc = "[`Lock`]: https://docs.rs/tidegate")]
#![cfg_attr(
    not(feature = "lock"),
    doc = "[`ExclusiveLayer`]: https://docs.rs/tidegate"
)]

mod admission;
mod algorithm;
mod callback;
mod clock;
#[cfg(feature = "config")]
pub mod config;
#[cfg(feature = "redis")]
mod connection;
mod decision;
mod error;
mod in_flight_counter;
mod jitter;
mod key;
mod layer;
#[cfg(feature = "limiter")]
mod limiter;
mod limits;
#[cfg(feature = "lock")]
pub mod lock;
mod quota;
mod rule;
mod store;
mod trace;
mod trouble;

pub use admission::ResponseFuture;
pub use algorithm::{Algorithm, Count, Counting, FixedWindow, Gcra, SlidingLog, SlidingWindow};
pub use callback::{
    BoxFuture, DegradeCallback, Denied, ErrorCallback, ErrorCallbackChain, FailOpen, Failed,
    FailureKind, Problem, Recovery,
};
#[cfg(feature = "test-util")]
pub use clock::ManualClock;
#[cfg(feature = "config")]
pub use config::ConfigError;
#[cfg(feature = "redis")]
pub use connection::{IntoRedisAddress, Redis, RedisAddress};
pub use decision::{Decision, Decisions, QuotaState, Source, Token, Verdict};
pub use error::{KeyError, KeyErrorKind, StoreError, StoreErrorKind};
#[cfg(feature = "axum")]
pub use key::MatchedPath;
pub use key::{
    ClientIp, Forwarding, Header, Joined, Key, KeyExtractor, PathOnly, PeerAddr, PeerIp,
};
pub use layer::{Headers, RateLimit, RateLimitLayer};
#[cfg(feature = "limiter")]
pub use limiter::{
    Generation, LimiterBackend, LimiterError, LimiterErrorKind, MemoryLimiters, Permit, Rate,
    RateLimiter, RateType,
};
pub use limits::Limits;
#[cfg(feature = "lock")]
pub use lock::{Exclusive, ExclusiveLayer, Lock, LockError, LockErrorKind, LockGuard, Owner};
pub use quota::{Quota, QuotaError};
pub use rule::{OnError, Policy, Rule, RuleError, Rules, Share, SharedRules};
#[cfg(feature = "redis")]
pub use store::RedisStore;
pub use store::{
    CircuitBreaker, Fallback, InFlight, MemoryStore, Resilient, Store, StoreExt, StoreFuture, Take,
    TakePart, Timeout,
};

/// The examples of the README, compiled.
#[cfg(all(doctest, feature = "axum", feature = "config", feature = "redis"))]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

/// The same of the page on the limiter and the lock.
#[cfg(all(doctest, feature = "limiter", feature = "lock"))]
#[doc = include_str!("../docs/primitives.md")]
struct PrimitivesDoctests;

/// The same of the page on what happens when Redis fails.
#[cfg(all(doctest, feature = "config", feature = "redis"))]
#[doc = include_str!("../docs/resilience.md")]
struct ResilienceDoctests;

/// The same of the page on clusters and sentinels.
#[cfg(all(doctest, feature = "cluster", feature = "sentinel"))]
#[doc = include_str!("../docs/topologies.md")]
struct TopologiesDoctests;

/// The same of the page on the algorithms.
#[cfg(doctest)]
#[doc = include_str!("../docs/algorithms.md")]
struct AlgorithmsDoctests;
