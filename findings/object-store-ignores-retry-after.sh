#!/usr/bin/env bash
# object_store (Rust) asks eleven times at a 429, whatever Retry-After says.
#
# Expected: a GET at a 429 or a 503 is repeated after the seconds that Retry-After says.
# Seen: eleven requests in 2 to 6 s, the second at once, whether it says 2, 60, 3600 or nothing.
# With: object_store 0.14.2; 29 November 2026
# Matters: a denial costs eleven requests, and its caller an error where the window ends later than
#   those few seconds. `RetryConfig` can lower the number; nothing in it reads the field.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

mkdir src
cat >Cargo.toml <<'END'
[package]
name = "asks"
version = "0.0.0"
edition = "2024"

[dependencies]
object_store = { version = "=0.14.2", default-features = false, features = ["http"] }
tokio = { version = "1", features = ["io-util", "net", "rt", "time"] }

[profile.dev]
debug = false
END
cat >src/main.rs <<'END'
use object_store::{ClientOptions, ObjectStoreExt, http::HttpBuilder};
use std::{cell::RefCell, rc::Rc, time::Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::{LocalSet, spawn_local};

async fn ask(status: &'static str, field: Option<&'static str>) -> String {
    let arrivals = Rc::new(RefCell::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let seen = arrivals.clone();
    let server = spawn_local(async move {
        loop {
            let (mut link, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(link.read_u8().await.unwrap());
            }
            seen.borrow_mut().push(Instant::now());
            let field = field.map_or(String::new(), |wait| format!("retry-after: {wait}\r\n"));
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n{field}\r\n"
            );
            link.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let store = HttpBuilder::new()
        .with_url(address)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .build()
        .unwrap();
    let answer = store.get(&"a".into()).await;
    server.abort();
    let arrivals = arrivals.borrow();
    let after = |at: usize| (arrivals[at] - arrivals[0]).as_secs();
    format!(
        "{status}, retry-after {}: {} requests, {}, {}, {}",
        field.unwrap_or("none"),
        arrivals.len(),
        if after(1) < 2 { "the second soon" } else { "the second late" },
        if after(arrivals.len() - 1) < 60 { "the last within a minute" } else { "the last later" },
        if answer.is_ok() { "success" } else { "error" },
    )
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    LocalSet::new()
        .run_until(async {
            let asks: Vec<_> = ["429 Denied", "503 Down"]
                .into_iter()
                .flat_map(|status| {
                    [None, Some("2"), Some("60"), Some("3600")].map(|field| (status, field))
                })
                .map(|(status, field)| spawn_local(ask(status, field)))
                .collect();
            for ask in asks {
                println!("{}", ask.await.unwrap());
            }
        })
        .await;
}
END
cargo build --quiet
target/debug/asks | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
429 Denied, retry-after none: 11 requests, the second soon, the last within a minute, error
429 Denied, retry-after 2: 11 requests, the second soon, the last within a minute, error
429 Denied, retry-after 60: 11 requests, the second soon, the last within a minute, error
429 Denied, retry-after 3600: 11 requests, the second soon, the last within a minute, error
503 Down, retry-after none: 11 requests, the second soon, the last within a minute, error
503 Down, retry-after 2: 11 requests, the second soon, the last within a minute, error
503 Down, retry-after 60: 11 requests, the second soon, the last within a minute, error
503 Down, retry-after 3600: 11 requests, the second soon, the last within a minute, error
END
