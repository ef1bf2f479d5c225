//! What most tests of this binary use.

pub(crate) use std::error::Error;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::{Duration, Instant};

pub(crate) use kit::cluster::{Cluster, Plan};
pub(crate) use kit::proxy::{Extra, FlightFault, Mode, Part, Proxy, Spot};
pub(crate) use kit::sentinels::{NAME, Sentinels};
pub(crate) use kit::stalls::{Lost, Stalls};
pub(crate) use kit::{
    HOUR, PATIENT, Redis as Server, SECOND, handle, is_allowed, millis, overall, run,
};
pub(crate) use redis::cmd;
pub(crate) use tidegate::limiter::{Rate, RateLimiter};
pub(crate) use tidegate::lock::{Lock, LockErrorKind};
pub(crate) use tidegate::store::StoreErrorKind;
pub(crate) use tidegate::{
    Algorithm, Key, Quota, Redis, RedisStore, Rule, Store, StoreError, Take,
};
pub(crate) use tokio::time::{sleep, timeout};
