//! Distributed rate limiting for tower and axum.

mod algorithm;
mod callback;
#[cfg(feature = "config")]
pub mod config;
#[cfg(feature = "redis")]
mod connection;
mod decision;
mod error;
mod key;
mod layer;
mod limits;
mod quota;
mod rule;
mod store;
mod trace;

pub use algorithm::SlidingLog;
pub use callback::{
    BoxFuture, DegradeCallback, Denied, ErrorCallback, ErrorCallbackChain, FailOpen, Failed,
    Problem, Recovery,
};
#[cfg(feature = "config")]
pub use config::ConfigError;
#[cfg(feature = "redis")]
pub use connection::Reconnecting;
pub use decision::{Decision, Decisions, QuotaState, Source, Verdict};
pub use error::{KeyError, StoreError, StoreErrorKind};
#[cfg(feature = "axum")]
pub use key::MatchedPath;
pub use key::{
    ClientIp, Forwarding, Header, Joined, Key, KeyExtractor, PathOnly, PeerAddr, PeerIp,
};
pub use layer::{Headers, RateLimit, RateLimitLayer, ResponseFuture};
pub use limits::Limits;
pub use quota::{Quota, QuotaError};
pub use rule::{OnError, Policy, Rule, RuleError, Rules, SharedRules};
#[cfg(feature = "test-util")]
pub use store::ManualClock;
#[cfg(feature = "redis")]
pub use store::RedisStore;
pub use store::{MemoryStore, Store, StoreExt, Take, Taking};
