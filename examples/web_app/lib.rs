//! The example web app: rules from a file, a store, routes. `start.rs` says how it is started.

mod child;
mod demo;
mod export;
mod metrics;
mod outage;
mod own_redis;
mod page;
mod routes;
mod rule_routes;
mod serve;
mod settings;
mod status;
mod url;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use demo::Demo;
use settings::Settings;
use tidegate::rule::Share;
use tidegate::{Limits, MemoryStore, Resilient, Rule, Rules, Store};

/// Runs the app until it is asked to stop. Errors say what the user can do.
pub async fn run() -> Result<(), String> {
    let settings = Settings::from_env()?;
    let limits = Limits::from_file(&settings.limits).map_err(|error| error.to_string())?;
    let listener = serve::listen(settings.port).await?;
    let demo = Arc::new(Demo::begin(&settings).await);
    let store = store(demo.redis_url(), demo.share()).await?;

    let limits = limits.store(Arc::clone(&store));
    // From now on a mistake in the file keeps the old rules, and the page shows it.
    limits
        .watch(&settings.limits)
        .map_err(|error| error.to_string())?;
    let app = routes::router(&limits, Arc::clone(&demo));
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    // Before the app says that it listens: its reader may send a signal immediately.
    let stop = serve::Stop::listen()?;
    announce(&format!(
        "listening on http://{address}\ndecided by {}\nrules: {}\n",
        decider(&*store, demo.has_own_redis()),
        in_force(&limits.rules().load())
    ));
    serve::until_stopped(listener, app, stop).await?;
    // What is given back by its outcome is on its way to Redis.
    limits.flush(Duration::from_secs(1)).await;
    Ok(())
}

async fn store(redis_url: Option<&str>, share: Option<Share>) -> Result<Arc<dyn Store>, String> {
    Ok(match redis_url {
        None => Arc::new(MemoryStore::new()),
        Some(url) => {
            // Not the address: it may hold a password.
            let without = |error| format!("no store at REDIS_URL: {error}");
            let redis = Resilient::redis(url, "web_app").map_err(without)?;
            let redis = redis.connect().await.map_err(without)?;
            Arc::new(redis.fallback(share))
        }
    })
}

fn decider(store: &dyn Store, is_own: bool) -> String {
    match store.name() {
        name if name == "memory" => "the memory of this process".to_owned(),
        name if is_own => format!("{name}, which this app has started"),
        name => format!("{name}, for all processes that use it"),
    }
}

fn in_force(rules: &Rules) -> String {
    if !rules.is_enabled() {
        return "none, limiting is disabled".to_owned();
    }
    let rules: Vec<_> = rules.iter().map(|rule| one_line(rule)).collect();
    match rules.is_empty() {
        true => "none".to_owned(),
        false => rules.join("; "),
    }
}

fn one_line(rule: &Rule) -> String {
    let quotas: Vec<_> = rule.policies().iter().map(ToString::to_string).collect();
    // Escaped, because a path may hold line feeds.
    format!("{} {}", rule.path().escape_debug(), quotas.join(" and "))
}

/// Prints, or does nothing on a closed pipe, where `println!` would panic.
fn announce(text: &str) {
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(text.as_bytes());
    let _ = stdout.flush();
}
