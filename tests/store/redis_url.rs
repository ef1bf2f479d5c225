//! Addresses, good and bad.

use std::time::{Duration, Instant};

use kit::Redis;
use redis::cmd;
use tidegate::store::StoreErrorKind;
use tidegate::{Quota, RedisStore};

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
        error
            .to_string()
            .starts_with("redis at 127.0.0.1:1 is not available: "),
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

/// A server that is still loading its data is waited for.
#[tokio::test]
async fn a_loading_server_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = redis_test::utils::get_random_available_port().to_string();
    let start = |delay: &str| {
        std::process::Command::new("redis-server")
            .args([
                "--port",
                &port,
                "--save",
                "",
                "--enable-debug-command",
                "yes",
            ])
            .args([
                "--key-load-delay",
                delay,
                "--loading-process-events-interval-bytes",
                "1024",
            ])
            .current_dir(folder.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("redis-server starts")
    };
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).expect("valid");
    let mut server = start("0");
    let mut connection = loop {
        match client.get_connection() {
            Ok(connection) => break connection,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    cmd("DEBUG")
        .arg("POPULATE")
        .arg(2_000)
        .exec(&mut connection)
        .expect("is filled");
    cmd("SAVE").exec(&mut connection).expect("is saved");
    server.kill().expect("our child");
    server.wait().expect("our child");

    // 2,000 keys at half a millisecond each.
    let mut server = start("500");
    let loading = loop {
        let mut connection = client.get_connection();
        let pong = connection
            .as_mut()
            .map(|connection| cmd("PING").exec(connection));
        match pong {
            Ok(Err(error)) => break error.code() == Some("LOADING"),
            Ok(Ok(())) => break false,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(loading, "it was too fast for this test");
    let store = RedisStore::connect(&format!("redis://127.0.0.1:{port}")).await;
    let store = store.expect("waited for").timeout(Duration::from_secs(20));
    assert!(
        ask(&store, &take("p", &[Quota::per_minute(1)]))
            .await
            .is_allowed()
    );
    server.kill().expect("our child");
    server.wait().expect("our child");
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
        assert_eq!(
            error.kind(),
            StoreErrorKind::Configuration,
            "{url}: {error}"
        );
        RedisStore::connect_lazy(url).expect_err("no address");
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

/// A `rediss://` address must not be taken for a plain one.
#[tokio::test]
async fn tls_is_not_plain() {
    let server = Redis::start();
    let error = error(&server.url.replace("redis://", "rediss://")).await;
    assert!(matches!(
        error.kind(),
        StoreErrorKind::Unavailable | StoreErrorKind::Timeout
    ));
}

/// A certificate that the system trusts is good, and another is not.
mod tls {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use redis::ConnectionAddr;
    use redis_test::server::RedisServer;
    use redis_test::utils::{build_keys_and_certs_for_tls_ext, get_random_available_port};

    use super::*;

    const URL: &str = "TIDEGATE_TEST_TLS_URL";

    /// Connects from a process of its own, since what a process trusts is in its environment.
    fn connects(url: &str, trusted: Option<&Path>) -> bool {
        let mut worker = Command::new(std::env::current_exe().expect("this test"));
        worker
            .args([
                "--exact",
                "redis_url::tls::worker_takes",
                "--include-ignored",
            ])
            .env(URL, url)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(trusted) = trusted {
            worker.env("SSL_CERT_FILE", trusted);
        }
        worker.status().expect("this test starts").success()
    }

    #[tokio::test]
    #[ignore = "is started by another test"]
    async fn worker_takes() {
        let Ok(url) = std::env::var(URL) else { return };
        let store = RedisStore::connect(&url).await.expect("a trusted server");
        let store = store.timeout(Duration::from_secs(20));
        let take = take("p", &[Quota::per_minute(1)]);
        assert!(ask(&store, &take).await.is_allowed());
    }

    #[test]
    fn only_what_is_trusted() {
        let folder = tempfile::tempdir().expect("a folder");
        let certificates = build_keys_and_certs_for_tls_ext(&folder, true);
        let trusted = certificates.ca_crt.clone();
        let port = get_random_available_port();
        let addr = ConnectionAddr::TcpTls {
            host: "127.0.0.1".to_owned(),
            port,
            insecure: false,
            tls_params: None,
        };
        let spawn = |command: &mut Command| command.spawn().expect("redis-server starts");
        let certificates = Some(certificates);
        let _server = RedisServer::new_with_addr_tls_modules_and_spawner(
            addr,
            None,
            certificates,
            false,
            None,
            &[],
            spawn,
        );
        let url = format!("rediss://127.0.0.1:{port}");
        let started = Instant::now();
        while !connects(&url, Some(&trusted)) {
            assert!(started.elapsed() < Duration::from_secs(20), "no connection");
        }
        assert!(!connects(&url, None), "an unknown authority was trusted");
    }
}
