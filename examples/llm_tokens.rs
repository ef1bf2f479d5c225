//! Tokens of a model, whose number is known only afterwards: the most that an answer may use is
//! reserved, and what it did not use is given back.
//!
//! `cargo run --example llm_tokens`

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::routing::get;
use support::show;
use tidegate::store::Charges;
use tidegate::{Quota, RateLimitLayer, Rule};

/// No answer uses more.
const MAX_TOKENS: u64 = 400;

/// Stands for a call of a model: the answer, and how many tokens it used.
async fn ask_the_model(question: &str) -> Result<(String, u64), StatusCode> {
    match question {
        "nonsense" => Err(StatusCode::BAD_GATEWAY),
        _ => Ok((format!("{question}? yes"), 100)),
    }
}

async fn chat(uri: Uri, charges: Charges) -> Result<String, StatusCode> {
    let (answer, tokens) = ask_the_model(uri.query().unwrap_or_default()).await?;
    // Units that were not given back stay charged until the window has passed.
    let settled = charges
        .of("tokens")
        .settle(tokens)
        .await
        .unwrap_or_default();
    let returned = settled.given_back;
    Ok(format!("{answer}, {tokens} tokens, {returned} given back"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rule = Rule::new("tokens", [Quota::new(Duration::from_secs(60), 1_000)?])?
        // What the model did not answer is free.
        .with_refund_on(["5xx"])?;
    let reserved = RateLimitLayer::from_rule(rule).cost(|_| MAX_TOKENS);
    let app = Router::new().route("/chat", get(chat).layer(reserved));

    println!(
        "1000 tokens a minute, {MAX_TOKENS} reserved for each answer; r is what is left then:"
    );
    for question in [
        "nonsense", "one", "two", "three", "four", "five", "six", "seven", "eight",
    ] {
        show(&app, support::get(&format!("/chat?{question}"))).await;
    }
    Ok(())
}
