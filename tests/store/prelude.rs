//! What most tests of this binary use: names of the crate and of the kit, and questions that are
//! answered or panic.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::{Duration, Instant};

pub(crate) use futures_util::FutureExt;
pub(crate) use futures_util::future::{join_all, poll_immediate};
pub(crate) use kit::clocked::{by, clock_at, remaining};
pub(crate) use kit::proxy::Proxy;
pub(crate) use kit::stub::Stub;
pub(crate) use kit::{
    HOUR, PATIENT, Redis, SECOND, ask_all, crowd, done, eventually, is_allowed, millis, run,
    spawn_each, still_runtime, store_on,
};
pub(crate) use redis::cmd;
pub(crate) use tidegate::decision::{Receipt, Source, Verdict};
pub(crate) use tidegate::key::Everyone;
pub(crate) use tidegate::rule::{OnError, Policy, Quotas, Share, Subject};
pub(crate) use tidegate::store::{StoreErrorKind, StoreFuture};
pub(crate) use tidegate::test_util::ManualClock;
pub(crate) use tidegate::{
    Algorithm, Decision, Key, MemoryStore, Quota, RedisStore, Resilient, Rule, Store, StoreError,
    Take,
};
pub(crate) use tokio::time::{sleep, timeout};

pub(crate) use crate::{allowed, ask, started};
