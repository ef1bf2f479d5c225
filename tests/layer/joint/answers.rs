//! Clients are not told of hidden quotas, nor of those that their request was not counted under.

use axum::response::Response;

use super::{Everyone, api, call, fields, keys, rule};
use crate::*;

async fn show(response: Response) -> String {
    crate::shown(response, &["content-length", "content-type"]).await
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
    let draft_7 = "ratelimit-policy: 2;w=3600, 10;w=3600\nratelimit: limit=2, remaining=1, ";
    let legacy = "x-ratelimit-limit: 2\nx-ratelimit-remaining: 1\n";
    for (headers, shown) in [
        (Headers::Draft11, ""),
        (Headers::Draft7, draft_7),
        (Headers::Legacy, legacy),
        (Headers::None, ""),
    ] {
        let (limits, clock) = limits(headers);
        let app = api(&limits);
        for user in ["alice", "bob", "carol"] {
            assert_eq!(call(&app, user, "here").await.status(), 200);
            clock.set(clock.now() + 1_000_000);
        }
        let told = show(call(&app, "alice", "here").await).await;
        assert!(told.starts_with("429"), "{told}");
        assert!(told.contains("retry-after: 3597\n"), "{told}");
        assert!(
            told.ends_with("\"violated-policies\":[],\"retry-after\":3597}"),
            "{told}"
        );
        for hidden in ["secret", "q=3", "limit=3,", "x-ratelimit-limit: 3"] {
            assert!(!told.contains(hidden), "{told}");
        }
        assert!(told.contains(shown), "{told}");
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
    let of_layer = show(call(&app, "alice", "here").await).await;
    assert!(of_layer.contains("\"api-user\";r=0;"), "{of_layer}");
    let refused = limits.check("api", keys("alice", "here")).await;
    let of_check = show(refused.expect_err("a denial").into_response()).await;
    for told in [of_layer, of_check] {
        let named = told.contains("\"violated-policies\":[\"api-user\"],\"retry-after\":");
        assert!(named && !told.contains("secret"), "{told}");
    }
}

#[tokio::test]
async fn grpc_clients_are_told_the_same() {
    let (limits, _) = limits(Headers::Draft11);
    let app = api(&limits);
    let ask = async |user: &str| {
        let fields = format!("content-type: application/grpc, {}", fields(user, "here"));
        show(kit::http::call(&app, post("/api", &fields)).await).await
    };
    for user in ["alice", "alice", "bob"] {
        ask(user).await;
    }
    for (user, message) in [
        ("alice", "grpc-message: quota exceeded: api-user\n"),
        // By what is hidden alone.
        ("bob", "grpc-message: quota exceeded\n"),
    ] {
        let told = ask(user).await;
        assert!(!told.contains("secret"), "{told}");
        for part in [message, "grpc-status: 8\n", "retry-after: 3600\n"] {
            assert!(told.contains(part), "{told}");
        }
    }
}

/// Where each quota is hidden, no field says that there are some.
#[tokio::test]
async fn a_rule_of_hidden_quotas_shows_nothing() {
    let hidden = |name: &str| Policy::new(name, Quota::per_hour(1)).hidden();
    let subjects = [
        super::user(hidden("one")),
        Subject::new("everyone", Everyone).limit(hidden("all")),
    ];
    let joint = Rule::joint("api", subjects).expect("a rule");
    let plain = Rule::with_policies("api", [hidden("one")]).expect("a rule");
    for rule in [joint, plain] {
        for headers in [Headers::Draft11, Headers::Draft7, Headers::Legacy] {
            let layer = RateLimitLayer::from_rule(rule.clone()).headers(headers);
            let app = app_at("/api", layer);
            let allowed = show(call(&app, "alice", "here").await).await;
            assert_eq!(allowed, "200 OK\nhandled");
            let told = show(call(&app, "alice", "here").await).await;
            let head = "429 Too Many Requests\ncache-control: no-store\nretry-after: 3600\n";
            let body = told.strip_prefix(head).expect(&told);
            assert!(body.ends_with("[],\"retry-after\":3600}") && body.lines().count() == 1);
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
        let counted = counted(&limits, "api");
        let denials = counted.denials.iter();
        let denials = denials.map(|(name, number)| (&**name, *number));
        let expected = [("api-user", 2), ("secret", 2), ("api-everyone", 0)];
        assert!(denials.eq(expected), "{:?}", counted.denials);
        assert_eq!(counted.decisions(DecisionOutcome::Denied), 3);
        assert_eq!((counted.units, counted.near_limit), (3, 2));
    }
}
