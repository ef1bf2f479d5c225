//! A process of the fleet: its own connection, its own fallback, four rules.

use super::ledger::Law;
use super::*;

/// What a decision may take, with all waiting.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(50);
pub(crate) const PROCESSES: u32 = 2;

const RULES: &str = r#"
    [rules.log]
    algorithm = "sliding-log"
    max-count = 300
    window = "1s"
    on-error = "respond"

    [rules.window]
    algorithm = "sliding-window"
    max-count = 800
    window = "2s"
    on-error = "respond"

    [rules.gcra]
    algorithm = "gcra"
    quotas = [{ max-count = 400, window = "1s", burst = 50 }]
    on-error = "respond"

    [rules.user]
    algorithm = "sliding-log"
    max-count = 4
    window = "1s"
    key = "header:x-user"
    on-error = "fallback"
"#;

/// A rule, how many users it tells apart, and what it promises.
pub(crate) struct Limit(pub(crate) &'static str, pub(crate) u64, pub(crate) Law);

const fn law(bound: u64, drains: Option<u64>, window: u64) -> Law {
    Law {
        bound,
        drains,
        window,
    }
}

pub(crate) const LIMITS: [Limit; 4] = [
    Limit("log", 1, law(300, None, 1_000_000)),
    Limit("window", 1, law(800, None, 2_000_000)),
    Limit("gcra", 1, law(50, Some(400), 1_000_000)),
    Limit("user", 100, law(4, None, 1_000_000)),
];

impl Limit {
    /// What holds for a charge of this limit.
    pub(crate) fn law(&self, by_fallback: bool) -> Law {
        let is_shared = by_fallback && self.2.drains.is_none();
        let share = if is_shared { u64::from(PROCESSES) } else { 1 };
        Law {
            bound: self.2.bound / share,
            ..self.2
        }
    }
}

/// Serves until the end of the test. Returns the address.
pub(crate) async fn start(redis: &str) -> String {
    let store = kit::load::store(redis).await.timeout(TIMEOUT);
    let store = Resilient::new(store).fallback(Share::of_processes(PROCESSES));
    let limits = Limits::from_toml(RULES).expect("valid");
    let limits = limits.store(store.build());
    let mut app = Router::new();
    for Limit(path, ..) in &LIMITS {
        app = app.route(&format!("/{path}"), get(charged).layer(limits.layer(path)));
    }
    kit::http::serve(app).await.to_string()
}

/// When it was charged, and by whom.
async fn charged(decision: Option<Decision>) -> String {
    let decision = decision.expect("it is limited");
    let stamp = decision.receipt().map_or(0, |receipt| receipt.stamp());
    let is_fallback = decision.source() == Source::Fallback;
    format!("{stamp} {}", u8::from(is_fallback))
}
