//! Several subjects, decided as one: each user, each address and everybody together, and for a user
//! requests beside tokens. Who is denied by one of them is charged in none.
//!
//! `cargo run --example joint`

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use http::request::Parts;
use tidegate::key::{Everyone, PeerAddr};
use tidegate::rule::{Policy, Subject};
use tidegate::{Decision, Header, PeerIp, Quota, RateLimitLayer, Rule};
use tower::ServiceExt;

/// The tokens that a request asks for: its cost. Who asks for none pays for one.
fn tokens(head: &Parts) -> u64 {
    let text = head.headers.get("x-tokens").and_then(|it| it.to_str().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

/// Sends one request, and says which subjects denied it. A server's log may name all of them; the
/// client is not told of the hidden one.
async fn ask(app: &Router, rule: &Rule, user: &str, peer: &str, tokens: u64) -> String {
    let peer: SocketAddr = peer.parse().expect("an address");
    let request = Request::get("/chat").header("x-user", user);
    let request = request.header("x-tokens", tokens).extension(PeerAddr(peer));
    let request = request.body(Body::empty()).expect("a valid request");
    let Ok(response) = app.clone().oneshot(request).await;
    let Some(decision) = Decision::from_extensions(response.extensions()) else {
        return format!("no decision: {}", response.status());
    };
    let denied_by = decision.denied_by(rule.policies());
    let denied_by: Vec<_> = denied_by.map(Policy::name).collect();
    match denied_by.is_empty() {
        true => "admitted".to_owned(),
        false => format!("denied by {}", denied_by.join(" and ")),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // These count requests; the others count tokens.
    let ten = Policy::from(Quota::per_second(10)).with_cost(1);
    let hundred = Policy::from(Quota::per_minute(100)).with_cost(1).hidden();
    let tokens_of_user = Quota::per_minute(90_000);
    let tokens_of_all = Quota::per_minute(150_000);
    let rule = Rule::joint(
        "chat",
        [
            Subject::new("user", Header::new("x-user"))
                .limit(ten)
                .limit(tokens_of_user),
            Subject::new("address", PeerIp).limit(hundred),
            Subject::new("everyone", Everyone).limit(tokens_of_all),
        ],
    )?;
    let layer = RateLimitLayer::from_rule(rule.clone()).cost(tokens);
    let app = Router::new().route("/chat", get(async || "yes").layer(layer));

    let [home, office] = ["192.0.2.1:443", "192.0.2.2:443"];
    for number in 1..=12 {
        let answer = ask(&app, &rule, "anna", home, 100).await;
        println!("anna {number}: {answer}");
    }
    println!("ben: {}", ask(&app, &rule, "ben", home, 80_000).await);
    println!("ben: {}", ask(&app, &rule, "ben", home, 20_000).await);
    // What was denied was charged nowhere: 11 requests count for this address.
    let mut admitted = 0;
    let denied = loop {
        match ask(&app, &rule, &format!("made-up-{admitted}"), home, 1).await {
            answer if answer == "admitted" => admitted += 1,
            denied => break denied,
        }
    };
    println!("{admitted} made-up users: admitted, then {denied}");
    println!("cleo: {}", ask(&app, &rule, "cleo", office, 80_000).await);
    println!("cleo: {}", ask(&app, &rule, "cleo", office, 60_000).await);
    Ok(())
}
