//! Who is measured, on which routes and under which limits.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::{Route, get};
use tower::{Layer, Service};

/// The names, as `--only` and the table know them.
pub const PLAIN: &str = "plain";
pub const PLAIN_ANSWERS: &str = "plain-answers";
pub const EVALSHA: &str = "evalsha";
pub const NAMES: [&str; 13] = [
    PLAIN,
    PLAIN_ANSWERS,
    EVALSHA,
    "log",
    "log-resilient",
    "gcra",
    "gcra-resilient",
    "memory",
    "memory-resilient",
    "tower_governor",
    "tower-rate-limiter",
    "tower-rate-limiter-gcra",
    "tower-rate-limit-redis",
];

/// What a route is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// One key, far below its limit.
    Hot,
    /// 100,000 keys in turn, each below its limit.
    Keys,
    /// One key, above its limit.
    Denied,
}

impl Traffic {
    pub const ALL: [Self; 3] = [Self::Hot, Self::Keys, Self::Denied];

    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Keys => "keys",
            Self::Denied => "denied",
        }
    }

    /// The limit of a key: the count of requests and the window.
    ///
    /// The long window lets the keys live as long as the bench, so that a run over many keys finds
    /// the state of an earlier one.
    pub fn limit(self) -> (u32, Duration) {
        const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);
        match self {
            Self::Hot => (1_000_000, Duration::from_secs(1)),
            Self::Keys => (1_000, WEEK),
            Self::Denied => (1, WEEK),
        }
    }

    /// The time in which one unit of the limit comes back.
    pub fn interval(self) -> Duration {
        let (max, window) = self.limit();
        window / max
    }

    /// The header field that every request sends, except where the load counts the keys up.
    pub fn fixed_key(self) -> Option<&'static str> {
        match self {
            Self::Hot => Some("x-key: hot"),
            Self::Keys => None,
            Self::Denied => Some("x-key: denied"),
        }
    }

    /// Whether an exhausted key of this contender is answered with a 429.
    pub fn denies(self, name: &str) -> bool {
        self == Self::Denied && name != PLAIN
    }

    /// `evalsha` cannot deny.
    pub fn includes(self, name: &str) -> bool {
        self != Self::Denied || name != EVALSHA
    }
}

/// How many keys the load of [`Traffic::Keys`] counts through; `wrk.lua` knows the number, too.
pub const KEYS: usize = 100_000;

pub const KEY_FIELD: &str = "x-key";

pub fn path(name: &str, traffic: Traffic) -> String {
    format!("/{name}/{}", traffic.name())
}

pub async fn handler() -> &'static str {
    "1"
}

/// A contender's routes, each around the same handler.
pub fn routes<L>(name: &str, layer: impl Fn(Traffic) -> L) -> Router
where
    L: Layer<Route> + Clone + Send + Sync + 'static,
    L::Service: Service<Request> + Clone + Send + Sync + 'static,
    <L::Service as Service<Request>>::Response: IntoResponse + 'static,
    <L::Service as Service<Request>>::Error: Into<Infallible> + 'static,
    <L::Service as Service<Request>>::Future: Send + 'static,
{
    Traffic::ALL
        .into_iter()
        .fold(Router::new(), |router, traffic| {
            let route = get(handler).layer(layer(traffic));
            router.route(&path(name, traffic), route)
        })
}

/// The routes without a limit.
pub fn plain_routes() -> Router {
    Traffic::ALL
        .into_iter()
        .fold(Router::new(), |router, traffic| {
            router.route(&path(PLAIN, traffic), get(handler))
        })
}
