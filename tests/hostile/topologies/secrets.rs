//! A user and a password in an address are used, and shown nowhere: not by any type, any error, any
//! event.

use std::fmt::{Debug, Write as _};
use std::future::ready;
use std::io::Write as _;

use kit::full_log::Log;
use kit::http::{send, text};
use tidegate::redis::{Credentials, RedisAddress};

use crate::prelude::*;

const SECRETS: [&str; 4] = ["s3cret", "wr0ng", "us3r", "n0body"];

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

/// A server that knows this user, and lets everybody else in, too.
fn add_user(server: &Server) {
    run(server, "ACL SETUSER us3r on >s3cret ~* &* +@all");
}

/// Uses everything that has an address, whatever comes of it; whether all of it worked.
async fn works(store: &RedisStore, redis: &Redis) -> bool {
    let take = Take::new(kit::rule("p", 1_000_000, HOUR), Key::default());
    let taken = show_outcome(store.take(&take).await);
    writeln!(Log, "{}", store.name()).expect("a vector takes everything");

    let limiter = RateLimiter::new(redis, "limiter").fair();
    let set = show_outcome(limiter.try_set_rate(overall(1_000_000, SECOND)).await);
    let acquired = show_outcome(limiter.try_acquire(1).await);
    let lock = Lock::new(redis, "lock");
    let locked = show_outcome(lock.try_lock_for(millis(100)).await);
    show(&(store, redis, &limiter, &lock));

    let layer = RateLimitLayer::new("q", SECOND, 1_000_000).store(Arc::new(store.clone()));
    show(&layer);
    let response = send(&app(layer), "/").await;
    show(&response);
    let answered = response.status().is_success();
    write!(Log, "{}", text(response).await).expect("a vector takes everything");
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

    // Credentials that change, and do not suit the server.
    for password in ["wr0ng", ""] {
        let credentials = Credentials::new(password).username("us3r");
        show(&credentials);
        let asked = move || ready(Ok::<_, Infallible>(credentials.clone()));
        let address = RedisAddress::from_url(&server.url).expect("a valid address");
        let address = address.credentials(asked);
        show(&address);
        assert!(!show_outcome(Redis::connect(&address).await));
        let store = RedisStore::connect_lazy(&address).expect("a valid address");
        let redis = Redis::connect_lazy(address).expect("a valid address");
        assert!(!works(&store, &redis).await);
    }

    let url = with(&server, "us3r:s3cret");
    let store = RedisStore::connect(&url).await.expect("it may");
    let (store, redis) = (store.timeout(PATIENT), handle(&url).await);
    assert!(works(&store, &redis).await);

    // An outage; then a server that does not know the user; then one that does.
    server.kill();
    sleep(millis(300)).await;
    let hurried = store.clone().timeout(millis(500));
    let in_a_hurry = redis.clone().timeout(millis(500));
    assert!(!works(&hurried, &in_a_hurry).await);
    server.restart();
    sleep(millis(600)).await;
    assert!(!works(&hurried, &in_a_hurry).await);
    add_user(&server);
    eventually("all works", async || works(&store, &redis).await).await;

    let shown = log.text();
    let is_right = shown.contains("127.0.0.1") && shown.contains(" WARN ");
    assert!(is_right, "too little was looked at");
    for secret in SECRETS {
        let line = shown.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret} is shown");
    }
}
