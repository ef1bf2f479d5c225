//! A user and a password in an address are used, and shown nowhere: not by any type, any error, any
//! event.

use std::error::Error;
use std::fmt::{Debug, Write as _};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use kit::Redis as Server;
use redis::cmd;
use tidegate::limiter::{Rate, RateLimiter};
use tidegate::lock::Lock;
use tidegate::{Quota, RateLimitLayer, Redis, RedisStore, Rule, Store, Take};
use tower::ServiceExt;

use kit::full_log::Log;

const SECRETS: [&str; 4] = ["s3cret", "wr0ng", "us3r", "n0body"];
const PATIENCE: Duration = Duration::from_secs(20);

fn show(what: &dyn Debug) {
    writeln!(Log, "{what:?} {what:#?}").expect("a vector takes everything");
}

/// An error with all that caused it.
fn show_error(error: &dyn Error) {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        write!(text, "{error} {error:?} {error:#?} ").expect("a string takes everything");
        next = error.source();
    }
    writeln!(Log, "{text}").expect("a vector takes everything");
}

fn show_outcome<T: Debug, E: Error>(outcome: Result<T, E>) -> bool {
    match &outcome {
        Ok(value) => show(value),
        Err(error) => show_error(error),
    }
    outcome.is_ok()
}

fn with(server: &Server, login: &str) -> String {
    server.url.replace("//", &format!("//{login}@"))
}

fn admin(server: &Server, words: &[&str]) {
    let mut command = cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command
        .exec(&mut server.connection())
        .expect("it may do that");
}

/// A server that knows this user, and lets everybody else in, too.
fn add_user(server: &Server) {
    admin(
        server,
        &[
            "ACL", "SETUSER", "us3r", "on", ">s3cret", "~*", "&*", "+@all",
        ],
    );
}

/// Uses everything that has an address, whatever comes of it; whether all of it worked.
async fn works(store: &RedisStore, redis: &Redis) -> bool {
    let rule = Arc::new(Rule::new("p", [Quota::per_hour(1_000_000)]).expect("a valid rule"));
    let take = Take::new(rule, tidegate::Key::default());
    let taken = show_outcome(store.take(&take).await);
    writeln!(Log, "{}", store.name()).expect("a vector takes everything");

    let limiter = RateLimiter::new(redis, "limiter").fair();
    let rate = Rate::overall(1_000_000, Duration::from_secs(1)).expect("a valid rate");
    let set = show_outcome(limiter.try_set_rate(rate).await);
    let acquired = show_outcome(limiter.try_acquire(1).await);
    let lock = Lock::new(redis, "lock");
    let locked = show_outcome(lock.try_lock_for(Duration::from_millis(100)).await);
    show(&(store, redis, &limiter, &lock));

    let layer =
        RateLimitLayer::new("q", Duration::from_secs(1), 1_000_000).store(Arc::new(store.clone()));
    show(&layer);
    let app = Router::new().route("/", get(async || "").layer(layer));
    let response = app.oneshot(Request::new(Body::empty())).await;
    let response = response.expect("axum does not fail");
    show(&response);
    let answered = response.status().is_success();
    let body = axum::body::to_bytes(response.into_body(), 1 << 16).await;
    Log.write_all(&body.expect("it is short"))
        .expect("a vector takes everything");
    taken && set && acquired && locked && answered
}

#[tokio::test]
async fn no_secret_is_ever_shown() {
    let log = Log::start();
    let mut server = Server::start();
    add_user(&server);

    // Addresses that make no sense, and servers that are not there.
    for url in [
        "redis://us3r:s3cret@",
        "redis://us3r:s3cret@127.0.0.1:port",
        "redis://127.0.0.1:1/0?protocol=s3cret",
        "unix:///nowhere?db=s3cret",
        "redis://us3r:s3cret@127.0.0.1:1/s3cret",
        "redis://us3r:s3cret/x@127.0.0.1:1",
        "redis://us3r:s3cret?x@127.0.0.1:1",
        "redis://us3r:s3cret#x@127.0.0.1:1",
        // Without its password this is a host and a port.
        "redis://us3r:1#s3cret@127.0.0.1:1",
        "redis://us3r:1/s3cret@127.0.0.1:1",
        "redis://us3r:1?s3cret@127.0.0.1:1",
        "redis:\t//us3r:1#s3cret@127.0.0.1:1",
        "redis-cluster://us3r:1#s3cret@127.0.0.1:1",
        "redis-cluster://us3r:1/s3cret@127.0.0.1:1",
        "redis-sentinel://us3r:1/s3cret@127.0.0.1:1",
        "redis://us3r:s3cret%@127.0.0.1:1",
        "redis://us3r:%FFs3cret@127.0.0.1:1",
        "http://us3r:s3cret@127.0.0.1:1",
        "us3r:s3cret@127.0.0.1",
        "redis://us3r:s3cret@127.0.0.1:1",
        "rediss://us3r:s3cret@127.0.0.1:1",
        "unix:///nowhere?user=us3r&pass=s3cret",
    ] {
        assert!(!show_outcome(RedisStore::connect(url).await), "{url}");
        assert!(!show_outcome(Redis::connect(url).await), "{url}");
        show_outcome(RedisStore::connect_lazy(url));
        show_outcome(Redis::connect_lazy(url));
    }
    // Logins that are refused.
    for login in ["us3r:wr0ng", "n0body:s3cret"] {
        let url = with(&server, login);
        assert!(!show_outcome(RedisStore::connect(&url).await));
        assert!(!show_outcome(Redis::connect(&url).await));
        let store = RedisStore::connect_lazy(&url).expect("a valid address");
        let redis = Redis::connect_lazy(&url).expect("a valid address");
        assert!(!works(&store, &redis).await);
    }

    let url = with(&server, "us3r:s3cret");
    let store = RedisStore::connect(&url)
        .await
        .expect("the right password")
        .timeout(PATIENCE);
    let redis = Redis::connect(&url)
        .await
        .expect("the right password")
        .timeout(PATIENCE);
    assert!(works(&store, &redis).await);

    // An outage; then a server that does not know the user; then one that does.
    server.kill();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (hurried, in_a_hurry) = (
        store.clone().timeout(Duration::from_millis(500)),
        redis.clone().timeout(Duration::from_millis(500)),
    );
    assert!(!works(&hurried, &in_a_hurry).await);
    server.restart();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(!works(&hurried, &in_a_hurry).await);
    add_user(&server);
    let began = Instant::now();
    while !works(&store, &redis).await {
        assert!(began.elapsed() < PATIENCE);
    }

    let shown = log.text();
    let is_right = shown.contains("127.0.0.1") && shown.contains(" WARN ");
    assert!(is_right, "too little was looked at");
    for secret in SECRETS {
        let line = shown.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret} is shown");
    }
}
