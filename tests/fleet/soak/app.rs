//! A process of the fleet: its own connection, its own fallback, four rules.

use super::ledger::Law;
use super::*;
use crate::client::serve;

/// What a decision may take, with all waiting.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(50);
pub(crate) const PROCESSES: u32 = 2;

/// A limit, and what it promises.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) path: &'static str,
    algorithm: Algorithm,
    max: u64,
    window: Duration,
    burst: u64,
    /// How many are told apart.
    pub(crate) users: u64,
    on_error: OnError,
}

const fn limit(path: &'static str, algorithm: Algorithm, max: u64, window: Duration) -> Limit {
    Limit {
        path,
        algorithm,
        max,
        window,
        burst: max,
        users: 1,
        on_error: OnError::Respond,
    }
}

pub(crate) const LIMITS: [Limit; 4] = [
    limit("log", Algorithm::SlidingLog, 300, SECOND),
    limit(
        "window",
        Algorithm::SlidingWindow,
        800,
        Duration::from_secs(2),
    ),
    Limit {
        burst: 50,
        ..limit("gcra", Algorithm::Gcra, 400, SECOND)
    },
    Limit {
        users: 100,
        on_error: OnError::Fallback,
        ..limit("user", Algorithm::SlidingLog, 4, SECOND)
    },
];

impl Limit {
    fn rule(&self) -> Rule {
        let quota = kit::quota(self.max, self.window);
        let quota = match self.algorithm {
            Algorithm::Gcra => quota.with_burst(self.burst).expect("a valid burst"),
            _ => quota,
        };
        let rule = Rule::new(self.path, [quota]).expect("a valid rule");
        let rule = rule.with_algorithm(self.algorithm);
        let rule = rule.with_on_error(self.on_error);
        match self.users {
            1 => rule,
            _ => rule.with_key(Header::new("x-user")),
        }
    }

    /// What holds for a charge of this limit.
    pub(crate) fn law(&self, by_fallback: bool) -> Law {
        let share = if by_fallback { u64::from(PROCESSES) } else { 1 };
        let is_bucket = self.algorithm == Algorithm::Gcra;
        Law {
            bound: if is_bucket {
                self.burst
            } else {
                self.max / share
            },
            drains: is_bucket.then_some(self.max),
            window: self.window.as_micros() as u64,
        }
    }
}

/// Serves until it is dropped.
pub(crate) struct App {
    pub(crate) address: String,
    task: JoinHandle<()>,
}

impl App {
    pub(crate) async fn start(redis: &str) -> Self {
        let store = kit::load::store(redis).await.timeout(TIMEOUT);
        let store = Resilient::new(store).fallback(Share::of_processes(PROCESSES));
        let (address, task) = serve(router(store.build())).await;
        Self { address, task }
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn router(store: Arc<dyn Store>) -> Router {
    let limits = Limits::new(LIMITS.iter().map(Limit::rule).collect::<Rules>()).store(store);
    LIMITS.iter().fold(Router::new(), |router, limit| {
        let layer: RateLimitLayer = limits.layer(limit.path);
        router.route(&format!("/{}", limit.path), get(charged).layer(layer))
    })
}

/// When it was charged, and by whom.
async fn charged(decision: Option<Decision>) -> String {
    let decision = decision.expect("it is limited");
    let stamp = decision.receipt().map_or(0, |receipt| receipt.stamp());
    let is_fallback = decision.source() == Source::Fallback;
    format!("{stamp} {}", u8::from(is_fallback))
}
