//! Rules by path from a file, replaced while requests run, and the error for a mistake in the file.
//!
//! `cargo run --example config`

#[path = "support/mod.rs"]
mod support;

use axum::Router;
use axum::routing::get;
use support::show;
use tidegate::{Limits, Rules};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // From a file: `Limits::from_file("limits.toml")?`.
    let limits = Limits::from_toml(
        r#"
        [rules.getId]
        max-count = 1
        window = "10s"
        key = "everyone"
        "#,
    )?;
    let app = Router::new()
        .route("/getId", get(|| async { "1" }).layer(limits.layer("getId")))
        .route(
            "/about",
            get(|| async { "no rule, no limit" }).layer(limits.layer("about")),
        );
    show(&app, support::get("/getId")).await;
    show(&app, support::get("/getId")).await;
    show(&app, support::get("/about")).await;

    println!("from now on 3, and what was counted stays:");
    limits.rules().replace(Rules::from_toml(
        "[rules.getId]\nkey = \"everyone\"\nmax-count = 3\nwindow-time = 10\n\
         window-time-unit = \"SECONDS\"",
    )?);
    show(&app, support::get("/getId")).await;
    show(&app, support::get("/getId")).await;
    show(&app, support::get("/getId")).await;

    println!("a mistake:");
    match Rules::from_toml("[rules.getId]\nmax-count = 3\nwindow = \"10 bananas\"") {
        Ok(_) => println!("none"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
