//! What most tests name. A binary has it in its root, or in a `prelude.rs` of its own, and its
//! modules have it by `use crate::*`, `use crate::prelude::*` or `use super::*`. What a module
//! imports or defines itself goes before what stands here.

pub use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
pub use std::convert::Infallible;
pub use std::panic::AssertUnwindSafe;
pub use std::path::{Path, PathBuf};
pub use std::pin::Pin;
pub use std::process::{Child, Command, Stdio};
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Arc, Mutex};
pub use std::task::{Context, Poll};
pub use std::time::{Duration, Instant};

pub use axum::Router;
pub use axum::body::Body;
pub use axum::response::IntoResponse;
pub use axum::routing::{any, get};
pub use futures_util::FutureExt;
pub use futures_util::future::{join_all, poll_immediate};
pub use http::request::Parts;
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
pub use http_body_util::BodyExt;
pub use redis::{Commands, cmd};
pub use serde_json::{Value, json};
pub use tempfile::TempDir;
pub use tidegate::algorithm::{AlgorithmConfig, Count};
pub use tidegate::callback::AlsoWithFallback;
pub use tidegate::decision::{QuotaState, Receipt, Source, Verdict};
pub use tidegate::key::{Everyone, Joined, KeyError, KeyErrorKind, PeerAddr};
pub use tidegate::layer::{CallError, Refused};
pub use tidegate::limiter::{
    Generation, LimiterBackend, LimiterError, LimiterErrorKind, MemoryLimiters, Rate, RateLimiter,
};
pub use tidegate::lock::{Lock, LockErrorKind, LockGuard, Owner};
pub use tidegate::metrics::{DecisionOutcome, RuleSnapshot};
pub use tidegate::rule::{OnError, Policy, Quotas, RuleError, Share, Subject};
pub use tidegate::store::{Charge, Charges, Settled, StoreErrorKind, StoreFuture};
pub use tidegate::test_util::ManualClock;
pub use tidegate::warning::WarningKind;
pub use tidegate::{
    Algorithm, ClientIp, Decision, Denied, FailOpen, Failed, Header, Headers, Key, KeyExtractor,
    Limits, MemoryStore, PeerIp, Quota, RateLimitLayer, Recovery, RedisStore, Resilient, Rule,
    Rules, Store, StoreError, Take,
};
pub use tokio::net::{TcpListener, TcpStream};
pub use tokio::runtime::{Builder, Runtime};
pub use tokio::task::{JoinHandle, JoinSet, yield_now};
pub use tokio::time::{advance, sleep, timeout};
pub use tower::{Layer, Service, ServiceExt, service_fn};

pub use crate::cluster::Cluster;
pub use crate::distant::{Distant, Fate};
pub use crate::fake_clock::FakeClock;
pub use crate::limiter_oracle::Monitor;
pub use crate::proxy::{Mode, Proxy};
pub use crate::random::Random;
pub use crate::stalls::{Lost, Stalls};
pub use crate::stub::Stub;
pub use crate::workers::{
    from_env, instructions, number, numbers, outputs, start_worker, start_workers, sum,
};
pub use crate::{
    LimiterCalls, LockCalls, Redis, Stopwatch, async_connection, busy_here, frees, kind,
    lock_error, overall, per_client, replace_rate,
};
pub use crate::{looks::*, tasks::*, world::*};
