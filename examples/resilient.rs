//! Redis dies and comes back. Every request gets an answer; the output says who decided, and why.
//!
//! `cargo run --example resilient`, which starts a redis-server of its own.

#[path = "support/redis.rs"]
mod support;

use std::time::{Duration, Instant};

use support::Server;
use tidegate::{Key, Quota, Resilient, Rule, Store, Take};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut server = Server::start()?;
    // Two processes run at most, so that each admits half while Redis cannot decide for both.
    let store = Resilient::redis(server.url.as_str(), "shop")?.processes(2);
    let take = Take::new(
        Rule::new("search", [Quota::per_minute(2_000)])?.into(),
        Key::default(),
    );

    ask_for(200, &store, &take).await?;
    println!("-- Redis is killed");
    server.kill();
    ask_for(500, &store, &take).await?;
    println!("-- Redis is started again, empty");
    server.restart()?;
    ask_for(500, &store, &take).await?;
    Ok(())
}

/// Sends requests for this many milliseconds, and prints each change of who decides.
async fn ask_for(millis: u64, store: &dyn Store, take: &Take) -> Result<(), tidegate::StoreError> {
    let began = Instant::now();
    let mut last = None;
    while began.elapsed() < Duration::from_millis(millis) {
        let decision = store.take(take).await?;
        let why = decision.failure().map(|why| format!(": {why}"));
        let who = (decision.source(), why.unwrap_or_default());
        if last.as_ref() != Some(&who) {
            let (at, left) = (began.elapsed().as_millis(), decision.remaining());
            println!("{at:>4} ms: {:?}, {left} left{}", who.0, who.1);
            last = Some(who);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
