//! Every use of tidegate in this package, through its public API.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tidegate::{
    Algorithm, Header, Key, MemoryStore, Quota, RateLimitLayer, RedisStore, Resilient, Rule, Store,
    Take,
};

use crate::Result;
use crate::contenders::{KEY_FIELD, Traffic, handler, routes};

/// Longer than the default, so that a pause of a busy machine does not end a run.
const TIMEOUT: Duration = Duration::from_secs(1);

pub async fn router(redis: &str) -> Result<Router> {
    let redis = RedisStore::connect(redis).await?.timeout(TIMEOUT);
    let log = Algorithm::SlidingLog;
    let gcra = Algorithm::Gcra;
    let router = of("log", log, Arc::new(redis.clone()))
        .merge(of("log-resilient", log, resilient(redis.clone())))
        .merge(of("gcra", gcra, Arc::new(redis.clone())))
        .merge(of("gcra-resilient", gcra, resilient(redis)))
        .merge(of("memory", log, Arc::new(memory())))
        .merge(of("memory-resilient", log, resilient(memory())));
    Ok(router)
}

/// A key that may have 10,000,000 requests in 10 s, and a limiter in each process for comparison.
pub async fn large_quota_router(redis: &str) -> Result<Router> {
    let redis = RedisStore::connect(redis).await?.timeout(TIMEOUT);
    let quota = Quota::new(Duration::from_secs(10), 10_000_000)?;
    let route = |name: &str, store: Arc<dyn Store>| {
        let layer = RateLimitLayer::from_rule(Rule::new(name, [quota])?)
            .store(store)
            .key(Header::new(KEY_FIELD));
        let router = Router::new().route(&format!("/{name}"), get(handler).layer(layer));
        Result::Ok(router)
    };
    Ok(Router::new()
        .route("/plain", get(handler))
        .merge(route("memory", Arc::new(memory()))?)
        .merge(route("log", Arc::new(redis))?))
}

fn of(name: &'static str, algorithm: Algorithm, store: Arc<dyn Store>) -> Router {
    routes(name, |traffic| {
        RateLimitLayer::from_rule(rule(name, algorithm, traffic))
            .store(Arc::clone(&store))
            .key(Header::new(KEY_FIELD))
    })
}

fn rule(name: &str, algorithm: Algorithm, traffic: Traffic) -> Rule {
    let (max, window) = traffic.limit();
    let quota = Quota::new(window, u64::from(max)).expect("a valid quota");
    let path = format!("{name}-{}", traffic.name());
    let rule = Rule::new(&path, [quota]).expect("a valid rule");
    rule.with_algorithm(algorithm)
}

fn resilient(store: impl Store) -> Arc<dyn Store> {
    Resilient::new(store).build()
}

fn memory() -> MemoryStore {
    MemoryStore::with_max_keys(200_000)
}

/// Decisions of a store, without an HTTP server around it.
pub struct DirectLimiter {
    store: RedisStore,
    takes: Vec<Take>,
}

impl DirectLimiter {
    /// Each key has a limit that it never reaches: one key may be asked for a million times a second.
    pub async fn connect(url: &str, keys: &[String], algorithm: Algorithm) -> Result<Self> {
        let store = RedisStore::connect(url).await?.timeout(TIMEOUT);
        let quota = Quota::new(Duration::from_secs(1), 100_000_000)?;
        let rule = Rule::new("direct", [quota])?.with_algorithm(algorithm);
        let rule = Arc::new(rule);
        let take = |key: &String| Take::new(Arc::clone(&rule), Key::from(key.as_str()));
        let takes = keys.iter().map(take).collect();
        Ok(Self { store, takes })
    }

    /// Asks for one unit of the key at this place; a denial is an error here.
    pub async fn decide(&self, key: usize) -> Result<()> {
        match self.store.take(&self.takes[key]).await?.is_allowed() {
            true => Ok(()),
            false => Err("a key below its limit was denied".into()),
        }
    }
}
