//! The server's process: killed, stopped, not there yet, not ready yet.

use std::time::Duration;

use kit::Redis;
use redis::cmd;
use tidegate::RedisStore;
use tidegate::store::StoreErrorKind as Kind;
use tokio::time::{Instant, sleep};

use crate::fault::Fault;
use crate::run;

const WHILE: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_empty() {
    let mut server = Redis::start();
    let fault = Fault::at("killed with -9, restarted empty", &server.url).await;
    let mut fault = fault.gives(Kind::Unavailable).forgets(1);
    fault.begins();
    server.kill();
    fault.lasts(WHILE).await;
    server.restart();
    fault.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_with_a_slow_command() {
    let server = Redis::start();
    let fault = Fault::at("DEBUG SLEEP", &server.url).await;
    let mut fault = fault.gives(Kind::Timeout);
    fault.begins();
    // Answers when it is over.
    run(&server, "DEBUG SLEEP 0.4");
    fault.lasts(Duration::ZERO).await;
    fault.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_there_at_the_start() {
    let mut server = Redis::start();
    server.kill();
    let store = RedisStore::connect_lazy(&server.url).expect("a valid address");
    let fault = Fault::before("refused from the start", store);
    let fault = fault.gives(Kind::Unavailable);
    fault.lasts(WHILE).await;
    server.restart();
    fault.ends().await;
}

/// A server whose dump takes about a second to load.
pub(crate) fn slow_to_load() -> Redis {
    let server = Redis::start_with(&[
        "--key-load-delay",
        "500",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    run(&server, "DEBUG POPULATE 2000");
    server
}

pub(crate) async fn has_loaded(url: &str) {
    let started = Instant::now();
    let client = redis::Client::open(url).expect("a valid address");
    let mut connection = client.get_connection().expect("a running server");
    while let Err(error) = cmd("PING").exec(&mut connection) {
        assert!(started.elapsed() < Duration::from_secs(20), "{error}");
        sleep(Duration::from_millis(1)).await;
    }
}
