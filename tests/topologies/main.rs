//! One server, a cluster, and a master behind sentinels, with all that happens to them.

mod addresses;
mod connects;
mod quiet;
mod ready;
mod resharding;
mod together;

use kit::prelude::*;
use tidegate::redis::IntoRedisAddress;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Why there is no connection, which is told in time.
async fn refused(address: impl IntoRedisAddress, kind: StoreErrorKind) -> StoreError {
    let started = Instant::now();
    let error = RedisStore::connect(address).await;
    let error = error.expect_err("no connection");
    assert!(started.elapsed() < RedisStore::CONNECT_TIMEOUT + PATIENT);
    assert_eq!(error.kind(), kind, "{error}");
    error
}

/// A listener that takes connections and says nothing.
async fn mute() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

/// Answers each command so, and hangs up where that is nothing. Returns its address.
async fn answering(answer: impl Fn(&str) -> String + Clone + Send + Sync + 'static) -> String {
    let (listener, address) = mute().await;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 4_096];
                while let Ok(length @ 1..) = client.read(&mut bytes).await {
                    let asked = String::from_utf8_lossy(&bytes[..length]).into_owned();
                    let answers: String = asked.split('*').skip(1).map(&answer).collect();
                    let sent = client.write_all(answers.as_bytes()).await;
                    if answers.is_empty() || sent.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}
