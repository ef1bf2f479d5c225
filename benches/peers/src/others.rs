//! The peers, each set up as its documentation says, with the keys and limits of the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::{GovernorError, GovernorLayer};
use tower_rate_limiter::{FixedWindow, GcraQuota, RateLimitError, RedisGcra, RedisStore};

use crate::Result;
use crate::contenders::{KEY_FIELD, Traffic, routes};

pub async fn router(redis: &str) -> Result<Router> {
    Ok(governor()
        .merge(tower_rate_limiter(redis).await?)
        .merge(tower_rate_limit_redis(redis).await?))
}

fn key_of<T>(request: &Request<T>) -> Option<String> {
    let value = request.headers().get(KEY_FIELD)?;
    value.to_str().ok().map(str::to_owned)
}

#[derive(Clone, Debug)]
struct KeyField;

impl tower_governor::key_extractor::KeyExtractor for KeyField {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> std::result::Result<String, GovernorError> {
        key_of(request).ok_or(GovernorError::UnableToExtractKey)
    }
}

fn governor() -> Router {
    routes("tower_governor", |traffic| {
        let config = GovernorConfigBuilder::default()
            .period(traffic.interval())
            .burst_size(traffic.limit().0)
            .key_extractor(KeyField)
            .finish()
            .expect("neither the burst nor the period is zero");
        GovernorLayer::<_, _, Body>::new(config)
    })
}

impl tower_rate_limiter::KeyExtractor for KeyField {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> std::result::Result<String, RateLimitError> {
        let missing = || RateLimitError::Key("missing_key".into(), "there is no key field".into());
        key_of(request).ok_or_else(missing)
    }
}

/// The fixed window answers 500 where `PTTL` is 0, which is the last millisecond of a window.
/// The hot key's window is therefore a week here; its length does not change the work.
async fn tower_rate_limiter(redis: &str) -> Result<Router> {
    let client = redis::Client::open(redis)?;
    let connection = client.get_multiplexed_async_connection().await?;
    let window = routes("tower-rate-limiter", |traffic| {
        let (max, window) = match traffic {
            Traffic::Hot => (u32::MAX, Traffic::Keys.limit().1),
            other => other.limit(),
        };
        let policy = FixedWindow::new(RedisStore::new(connection.clone()), max.into(), window);
        tower_rate_limiter::RateLimitLayer::builder(KeyField)
            .policy_name(format!("window-{}", traffic.name()))
            .with_policy(policy.expect("a valid limit"))
            .build()
            .expect("a valid layer")
    });
    let gcra = routes("tower-rate-limiter-gcra", |traffic| {
        let (max, window) = traffic.limit();
        let quota = GcraQuota::new(max, window, max).expect("a valid quota");
        tower_rate_limiter::RateLimitLayer::builder(KeyField)
            .policy_name(format!("gcra-{}", traffic.name()))
            .with_policy(RedisGcra::new(connection.clone(), quota))
            .build()
            .expect("a valid layer")
    });
    Ok(window.merge(gcra))
}

/// The key, which `tower-rate-limit-redis` uses as it is.
#[derive(Clone)]
struct RawKey {
    prefix: String,
    /// How many requests share one name of a key; see [`RawKey::of`].
    renamed: Option<Arc<AtomicU64>>,
}

/// The greatest capacity is 65,535 units and the shortest interval 1 ms, so one hot key would be
/// denied within seconds. It gets a new name after this many requests.
const REQUESTS_PER_NAME: u64 = 50_000;

impl RawKey {
    fn of(traffic: Traffic) -> Self {
        Self {
            prefix: format!("raw-{}:", traffic.name()),
            renamed: (traffic == Traffic::Hot).then(Arc::default),
        }
    }
}

impl tower_rate_limit_redis::KeyResolver for RawKey {
    type Key = String;
    type ErrorBody = Body;

    fn key<T>(&self, request: &Request<T>) -> std::result::Result<String, Response<Body>> {
        let Some(key) = key_of(request) else {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::BAD_REQUEST;
            return Err(response);
        };
        let prefix = &self.prefix;
        Ok(match &self.renamed {
            None => format!("{prefix}{key}"),
            Some(count) => {
                let name = count.fetch_add(1, Ordering::Relaxed) / REQUESTS_PER_NAME;
                format!("{prefix}{key}:{name}")
            }
        })
    }
}

async fn tower_rate_limit_redis(redis: &str) -> Result<Router> {
    let client = redis032::Client::open(redis)?;
    let connection = client.get_multiplexed_async_connection().await?;
    Ok(routes("tower-rate-limit-redis", |traffic| {
        let capacity = u16::try_from(traffic.limit().0).unwrap_or(u16::MAX);
        let shortest = std::time::Duration::from_millis(1);
        tower_rate_limit_redis::RateLimitLayer::builder()
            .conn(connection.clone())
            .key_resolver(RawKey::of(traffic))
            .capacity(capacity)
            .emission_interval(traffic.interval().max(shortest))
            .build()
    }))
}
