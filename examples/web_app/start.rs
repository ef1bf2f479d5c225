//! A web app with limited routes, and a page that shows what the limits do.
//!
//! It watches the file with the rules: edit `examples/limits.toml`, and the page shows the new
//! limits. `/limits` shows who is limited now, and lets them through. `/metrics` has the counters for
//! Prometheus.
//!
//! ```sh
//! cargo run --example web_app                                    # then open http://127.0.0.1:3000
//! REDIS_URL=memory cargo run --example web_app                   # counts in its own memory
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example web_app   # shares its limits through Redis
//! PORT=3001 REDIS_URL=redis://127.0.0.1:6379 cargo run --example web_app   # with this one
//! PROCESSES=2 REDIS_URL=... cargo run --example web_app          # admits half without Redis
//! LIMITS=my.toml cargo run --example web_app                     # other rules
//! ```
//!
//! Without `REDIS_URL` it starts a `redis-server` of its own, if that is installed, so that the page
//! can stop it and start it again. Both end with the app.
//!
//! How an app uses the library is in `lib.rs` and `routes.rs`; what answers in place of a handler
//! is in `export.rs` and `outage.rs`.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match tidegate_web_app::run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("web_app: {message}");
            ExitCode::FAILURE
        }
    }
}
