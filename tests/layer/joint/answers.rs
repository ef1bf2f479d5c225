//! Clients are not told of hidden quotas, nor of those that their request was not counted under.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{Request, Response};
use tidegate::key::Everyone;
use tidegate::metrics::DecisionOutcome;
use tidegate::rule::{Policy, Subject};
use tidegate::test_util::ManualClock;
use tidegate::{Header, Headers, Limits, MemoryStore, Quota, RateLimitLayer, Rule};
use tower::ServiceExt;

use super::{api, call, keys, rule};
use crate::{Stores, text};

/// Status, all fields that are not axum's, and the body.
async fn show(response: Response<Body>) -> String {
    let mut shown = format!("{}\n", response.status());
    for (name, value) in response.headers() {
        if name != "content-length" && name != "content-type" {
            shown += &format!("{name}: {}\n", value.to_str().expect("printable"));
        }
    }
    shown + &text(response).await
}

fn limits(headers: Headers) -> (Limits, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::new().clock(clock.clone());
    (Limits::new([rule()]).store(store).headers(headers), clock)
}

#[tokio::test]
async fn an_allowed_request_is_told_what_it_counts_under() {
    let (limits, _) = limits(Headers::Draft11);
    let app = api(&limits);
    let policy = "ratelimit-policy: \"api-user\";q=2;w=3600,\"api-everyone\";q=10;w=3600\n";
    let told = show(call(&app, "alice", "here").await).await;
    let fields = "ratelimit: \"api-user\";r=1;t=3600,\"api-everyone\";r=9;t=3600\n";
    assert_eq!(told, format!("200 OK\n{policy}{fields}1"));
    // The policy is that of the rule, whatever the request.
    let told = show(call(&app, "", "here").await).await;
    let fields = "ratelimit: \"api-everyone\";r=8;t=3600\n";
    assert_eq!(told, format!("200 OK\n{policy}{fields}1"));
    let told = show(call(&app, "alice", "there").await).await;
    assert!(told.contains("\"api-user\";r=0;"), "{told}");
}

/// A denial by hidden quotas alone has a true time, and no name.
#[tokio::test]
async fn a_denial_by_a_hidden_quota_does_not_name_it() {
    let all = [
        Headers::Draft11,
        Headers::Draft7,
        Headers::Legacy,
        Headers::None,
    ];
    for headers in all {
        let (limits, clock) = limits(headers);
        let app = api(&limits);
        for user in ["alice", "bob", "carol"] {
            assert_eq!(call(&app, user, "here").await.status(), 200);
            clock.set(clock.now() + 1_000_000);
        }
        let told = show(call(&app, "alice", "here").await).await;
        assert!(told.starts_with("429"), "{told}");
        assert!(told.contains("retry-after: 3597\n"), "{told}");
        assert!(told.ends_with("\"violated-policies\":[]}"), "{told}");
        assert!(!told.contains("secret") && !told.contains("q=3"), "{told}");
        assert!(
            !told.contains("limit=3,") && !told.contains("x-ratelimit-limit: 3"),
            "{told}"
        );
        if headers == Headers::Legacy {
            assert!(
                told.contains("x-ratelimit-limit: 2\nx-ratelimit-remaining: 1\n"),
                "{told}"
            );
        }
        if headers == Headers::Draft7 {
            assert!(
                told.contains("ratelimit-policy: 2;w=3600, 10;w=3600\n"),
                "{told}"
            );
            assert!(told.contains("ratelimit: limit=2, remaining=1, "), "{told}");
        }
        clock.set(clock.now() + 3_597_000_000);
        assert_eq!(call(&app, "alice", "here").await.status(), 200);
    }
}

/// Named is what denied, but for what is hidden.
#[tokio::test]
async fn a_denial_names_the_others() {
    let (limits, _) = limits(Headers::Draft11);
    let app = api(&limits);
    for user in ["alice", "alice", "bob"] {
        assert_eq!(call(&app, user, "here").await.status(), 200);
    }
    let told = show(call(&app, "alice", "here").await).await;
    assert!(
        told.ends_with("\"violated-policies\":[\"api-user\"]}"),
        "{told}"
    );
    assert!(
        told.contains("\"api-user\";r=0;") && !told.contains("secret"),
        "{told}"
    );
    let refused = limits.check("api", keys("alice", "here")).await;
    let refused = refused.expect_err("a denial");
    let told = show(axum::response::IntoResponse::into_response(refused)).await;
    assert!(
        told.ends_with("[\"api-user\"]}") && !told.contains("secret"),
        "{told}"
    );
}

#[tokio::test]
async fn grpc_clients_are_told_the_same() {
    let (limits, _) = limits(Headers::Draft11);
    let app = api(&limits);
    let ask = async |user: &str| {
        let request = Request::post("/api").header("content-type", "application/grpc");
        let request = request.header("x-user", user).header("x-address", "here");
        let request = request.body(Body::empty()).expect("a request");
        let response = app.clone().oneshot(request).await;
        show(response.expect("axum does not fail")).await
    };
    for user in ["alice", "alice", "bob"] {
        ask(user).await;
    }
    let by_both = ask("alice").await;
    assert!(
        by_both.contains("grpc-message: quota exceeded: api-user\n"),
        "{by_both}"
    );
    let by_hidden = ask("bob").await;
    assert!(
        by_hidden.contains("grpc-message: quota exceeded\n"),
        "{by_hidden}"
    );
    for told in [by_both, by_hidden] {
        assert!(
            told.contains("grpc-status: 8\n") && !told.contains("secret"),
            "{told}"
        );
        assert!(told.contains("retry-after: 3600\n"), "{told}");
    }
}

/// Where each quota is hidden, no field says that there are some.
#[tokio::test]
async fn a_rule_of_hidden_quotas_shows_nothing() {
    let hidden = |name: &str| Policy::new(name, Quota::per_hour(1)).hidden();
    let subjects = [
        Subject::new("user", Header::new("x-user")).limit(hidden("one")),
        Subject::new("everyone", Everyone).limit(hidden("all")),
    ];
    let joint = Rule::joint("api", subjects).expect("a rule");
    let plain = Rule::with_policies("api", [hidden("one")]).expect("a rule");
    for rule in [joint, plain] {
        for headers in [Headers::Draft11, Headers::Draft7, Headers::Legacy] {
            let layer = RateLimitLayer::from_rule(rule.clone()).headers(headers);
            let app = Router::new().route("/api", any(async || "1").layer(layer));
            assert_eq!(show(call(&app, "alice", "here").await).await, "200 OK\n1");
            let told = show(call(&app, "alice", "here").await).await;
            let fields: Vec<_> = told.lines().collect();
            assert_eq!(fields[..2], ["429 Too Many Requests", "retry-after: 3600"]);
            assert!(fields.len() == 3 && fields[2].ends_with("[]}"), "{told}");
        }
    }
}

/// Metrics have each quota that denied, also hidden ones.
#[tokio::test]
async fn denials_are_counted_by_quota() {
    for store in Stores::start().await.all {
        let limits = Limits::new([rule()]).store(Arc::clone(&store));
        let app = api(&limits);
        for user in ["alice", "alice", "bob", "alice", "bob"] {
            call(&app, user, "here").await;
        }
        call(&app, "alice", "there").await;
        let snapshot = limits.snapshot();
        let counted = snapshot.rule("api").expect("a layer uses it");
        let denials = counted
            .denials
            .iter()
            .map(|(name, number)| (&**name, *number));
        let expected = [("api-user", 2), ("secret", 2), ("api-everyone", 0)];
        assert!(denials.eq(expected), "{:?}", counted.denials);
        assert_eq!(counted.decisions(DecisionOutcome::Denied), 3);
        assert_eq!((counted.units, counted.near_limit), (3, 2));
    }
}
