//! Addresses, good and bad.

use std::time::{Duration, Instant};

use redis::cmd;
use tidegate::{Quota, RedisStore, StoreErrorKind};

use crate::support::Redis;
use crate::{ask, take};

async fn error(url: &str) -> tidegate::StoreError {
    RedisStore::connect(url)
        .await
        .expect_err("nothing to connect to")
}

#[tokio::test]
async fn a_refused_connection_is_told_at_once() {
    let started = Instant::now();
    let error = error("redis://127.0.0.1:1").await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(
        error.to_string().starts_with("redis is not available: "),
        "{error}"
    );
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// A server that takes the connection and says nothing.
#[tokio::test]
async fn connecting_is_bounded() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let url = format!("redis://{}", silent.local_addr().expect("an address"));
    let started = Instant::now();
    let error = error(&url).await;
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert!(started.elapsed() < RedisStore::CONNECT_TIMEOUT + Duration::from_secs(2));
}

#[tokio::test]
async fn nonsense_is_an_error() {
    for url in [
        "",
        "127.0.0.1:6379",
        "http://127.0.0.1",
        "redis://127.0.0.1:port",
    ] {
        let error = error(url).await;
        assert!(!error.to_string().is_empty(), "{url}");
    }
}

#[tokio::test]
async fn passwords_are_used_and_never_shown() {
    let server = Redis::start();
    let mut connection = server.connection();
    let set = cmd("CONFIG")
        .arg("SET")
        .arg("requirepass")
        .arg("s3cret")
        .exec(&mut connection);
    set.expect("is set");

    let none = error(&server.url).await;
    assert_eq!(none.kind(), StoreErrorKind::Refused, "{none}");
    let wrong = error(&server.url.replace("//", "//:wr0ng@")).await;
    assert_eq!(wrong.kind(), StoreErrorKind::Refused, "{wrong}");
    assert!(!format!("{wrong} {wrong:?}").contains("wr0ng"));

    let url = server.url.replace("//", "//:s3cret@");
    let store = RedisStore::connect(&url).await.expect("the right password");
    let store = store.timeout(Duration::from_secs(20));
    assert!(
        ask(&store, &take("p", &[Quota::per_minute(1)]))
            .await
            .is_allowed()
    );
    let name = tidegate::Store::name(&store);
    assert_eq!(name, server.url.replace("redis://", "redis at "));
    assert!(!format!("{store:?} {name}").contains("s3cret"));
}

#[tokio::test]
async fn unix_sockets() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("redis.sock");
    let mut server = std::process::Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--unixsocket"])
        .arg(&path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("redis-server starts");
    let url = format!("unix://{}", path.display());
    let started = Instant::now();
    let store = loop {
        match RedisStore::connect(&url).await {
            Ok(store) => break store,
            Err(error) => assert!(started.elapsed() < Duration::from_secs(20), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let store = store.timeout(Duration::from_secs(20));
    assert!(
        ask(&store, &take("p", &[Quota::per_minute(1)]))
            .await
            .is_allowed()
    );
    server.kill().expect("our child");
    server.wait().expect("our child");
}

/// Without the feature a `rediss://` address must not be taken for a plain one.
#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_is_not_plain() {
    let server = Redis::start();
    let error = error(&server.url.replace("redis://", "rediss://")).await;
    assert!(matches!(
        error.kind(),
        StoreErrorKind::Unavailable | StoreErrorKind::Timeout
    ));
}
