//! Addresses, good and bad.

use kit::process::Process;

use crate::prelude::*;
use crate::take;

async fn error(url: &str) -> tidegate::StoreError {
    let connected = RedisStore::connect(url).await;
    connected.expect_err("nothing to connect to")
}

/// The address leads to a server that decides.
async fn decides(url: &str) -> RedisStore {
    let store = RedisStore::connect(url).await.expect("a running server");
    let store = store.timeout(PATIENT);
    let one = take("p", &[Quota::per_minute(1)]);
    assert!(ask(&store, &one).await.is_allowed());
    store
}

#[tokio::test]
async fn a_refused_connection_is_told_at_once() {
    let refused = tokio::time::timeout(PATIENT, error("redis://127.0.0.1:1"));
    let error = refused.await.expect("at once");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let text = error.to_string();
    let is_told = text.starts_with("redis at 127.0.0.1:1 is not available: ");
    assert!(is_told, "{text}");
}

/// A server that is still loading its data is waited for.
#[tokio::test]
async fn a_loading_server_is_waited_for() {
    let often = "--loading-process-events-interval-bytes 1024";
    let arguments = format!("--enable-debug-command yes {often}");
    let mut server = Process::start(&words(&arguments));
    server.run::<()>("DEBUG POPULATE 2000");
    server.run::<()>("SAVE");
    // 2,000 keys at half a millisecond each.
    server.kill();
    server.respawn(&["--key-load-delay", "500"]);
    let loads = async || server.try_run::<()>("PING").is_err_and(is_loading);
    eventually("it is loading", loads).await;
    decides(&server.url()).await;
}

fn is_loading(error: redis::RedisError) -> bool {
    error.code() == Some("LOADING")
}

#[tokio::test]
async fn nonsense_is_an_error() {
    let urls = words("127.0.0.1:6379 http://127.0.0.1 redis://127.0.0.1:port");
    for url in urls.into_iter().chain([""]) {
        let error = error(url).await;
        let kind = error.kind();
        assert_eq!(kind, StoreErrorKind::Configuration, "{url}: {error}");
        RedisStore::connect_lazy(url).expect_err("no address");
    }
}

#[tokio::test]
async fn passwords_are_used_and_never_shown() {
    let server = Redis::start();
    run(&server, "CONFIG SET requirepass s3cret");

    let none = error(&server.url).await;
    assert_eq!(none.kind(), StoreErrorKind::Refused, "{none}");
    let wrong = error(&server.url.replace("//", "//:wr0ng@")).await;
    assert_eq!(wrong.kind(), StoreErrorKind::Refused, "{wrong}");
    assert!(!format!("{wrong} {wrong:?}").contains("wr0ng"));

    let url = server.url.replace("//", "//:s3cret@");
    let store = decides(&url).await;
    let name = tidegate::Store::name(&store);
    assert_eq!(name, server.url.replace("redis://", "redis at "));
    assert!(!format!("{store:?} {name}").contains("s3cret"));
}

#[tokio::test]
async fn unix_sockets() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("redis.sock");
    let path = path.to_str().expect("an ordinary path");
    let _server = Process::start(&["--save", "", "--unixsocket", path]);
    decides(&format!("unix://{path}")).await;
}
