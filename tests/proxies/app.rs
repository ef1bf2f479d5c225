//! The app behind the proxies of this folder: `bash tests/proxies.sh`. It listens on 127.0.0.1 at the
//! port of its first argument; a second one names the field that the proxy writes.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::request::Parts;
use axum::routing::{any, get, post};
use tidegate::key::Forwarding;
use tidegate::{ClientIp, Limits, MemoryStore, Quota, RateLimitLayer, Rule};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().ok_or("a port is expected")?;
    let field = match arguments.next().as_deref() {
        Some("forwarded") => Forwarding::Forwarded,
        _ => Forwarding::XForwardedFor,
    };
    let client = ClientIp::behind(["127.0.0.1/32".parse()?]).field(field);
    let [login, search] = ["login", "search"].map(|path| Rule::new(path, [Quota::per_minute(5)]));
    let upload = Rule::new("upload", [Quota::per_minute(0)]);
    let down = Rule::new("down", [Quota::per_minute(1)])?;
    let down = RateLimitLayer::from_rule(down).store(Arc::new(MemoryStore::with_max_keys(0)));
    let limits = Limits::new([login?, search?, upload?]).key(client.clone());
    let who = async move |head: Parts| {
        let host = head.headers.get("host").and_then(|it| it.to_str().ok());
        let client = client.address(&head).map_err(|error| error.to_string())?;
        Ok::<_, String>(format!("{client} {}", host.unwrap_or_default()))
    };
    let read = async |body: Bytes| body.len().to_string();
    let warned = limits.clone();
    let warnings = async move || {
        let found = warned.warnings();
        found.iter().map(|it| format!("{it}\n")).collect::<String>()
    };
    let app = Router::new()
        .route("/who", any(who))
        .route("/warnings", get(warnings))
        .route("/open", post(read))
        .route("/down", post("up").layer(down))
        .route("/login", post("in").layer(limits.layer("login")))
        .route("/search", get("found").layer(limits.layer("search")))
        .route("/upload", post(read).layer(limits.layer("upload")))
        .layer(DefaultBodyLimit::disable());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
