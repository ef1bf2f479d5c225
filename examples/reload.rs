//! Rules from a file that is watched, and read immediately on SIGHUP.
//!
//! `cargo run --example reload`. It says its process id; then edit the file that it names, or send
//! `kill -HUP <id>`.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tidegate::Limits;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

const FILE: &str = "examples/limits.toml";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A service does not start with a mistake in its file. Later, a mistake keeps the old rules.
    let limits = Limits::from_file(FILE)?;
    limits.watch(FILE)?;
    tokio::spawn(reload_on_hangup(limits.clone()));
    tokio::spawn(show_changes(limits.clone()));

    let app = Router::new().route("/getId", get(async || "1").layer(limits.layer("getId")));
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!(
        "http://127.0.0.1:3000/getId, rules of {FILE}, process {}",
        std::process::id()
    );
    Ok(axum::serve(listener, app).await?)
}

async fn reload_on_hangup(limits: Limits) -> std::io::Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    while hangups.recv().await.is_some() {
        match limits.reload(FILE) {
            Ok(()) => println!("SIGHUP: the rules are those of {FILE}"),
            Err(error) => eprintln!("SIGHUP: the old rules stay: {error}"),
        }
    }
    Ok(())
}

async fn show_changes(limits: Limits) {
    let mut shown = (0, None);
    loop {
        let status = limits.status();
        let now = (status.version, status.error.clone());
        if now != shown {
            let hash = status.content_hash.unwrap_or_default();
            println!(
                "version {}, content {hash}, kept {:?}",
                now.0, status.kept_rules
            );
            now.1.iter().for_each(|error| println!("refused: {error}"));
            shown = now;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
