//! What is given back by the outcome of a request, in all subjects, at each cost.

use super::*;

const FILE: &str = r#"
[rules.api]
cost = 30
refund-on = ["5xx", "denied"]
quotas = [
    { max-count = 300, window = "1h", key = "header:x-user", subject = "user", absent = "skip" },
    { max-count = 8, window = "1h", key = "header:x-user", subject = "user", cost = 2 },
    { max-count = 900, window = "1h", key = "header:x-address", subject = "address" },
]
[rules.inner]
max-count = 1
window = "1h"
key = "header:x-inner"
"#;

/// Until the refunds, for which nobody waits, have come.
async fn until_left(limits: &Limits, user: &str, expected: [u64; 3]) {
    let what = format!("{expected:?} are left");
    let [user, address, _] = keys(user, "1");
    let keys = [user, address];
    eventually(&what, async || left(limits, keys.clone()).await == expected).await;
}

#[tokio::test]
async fn outcomes_give_back_in_all_subjects() {
    let (_server, stores) = stores().await;
    for store in stores {
        let limits = limits(FILE, store);
        let layer = limits.layer("api");
        let app = Router::new().route("/", any(kit::http::handler).layer(layer));
        assert_eq!(ask(&app, "x-user: a, x-address: 1").await, OK);
        for _ in 0..20 {
            let fields = "x-user: a, x-address: 1, x-status: 502";
            assert_eq!(ask(&app, fields).await, 502);
            until_left(&limits, "a", [270, 6, 870]).await;
        }
        // Without a user.
        assert_eq!(ask(&app, "x-address: 1, x-status: 502").await, 502);
        until_left(&limits, "a", [270, 6, 870]).await;
        for at in 0..5 {
            let status = ask(&app, "x-user: a, x-address: 1").await;
            assert_eq!(status, if at < 3 { OK } else { DENIED }, "{at}");
        }
        until_left(&limits, "a", [180, 0, 780]).await;
        until_left(&limits, "b", [300, 8, 780]).await;
    }
}

/// An inner layer denies: what the outer one charged is given back in all of its subjects.
#[tokio::test]
async fn an_inner_denial_gives_back_in_all_subjects() {
    let (_server, stores) = stores().await;
    for store in stores {
        let limits = limits(FILE, store);
        let inner: MethodRouter = any(async || "1").layer(limits.layer("inner"));
        let app = Router::new().route("/", inner.layer(limits.layer("api")));
        for at in 0..6 {
            let status = ask(&app, "x-user: a, x-address: 1, x-inner: i").await;
            assert_eq!(status, if at < 1 { OK } else { DENIED }, "{at}");
        }
        until_left(&limits, "a", [270, 6, 870]).await;
    }
}

/// A handler settles, and its response is one that gives back: one of both counts.
#[tokio::test]
async fn a_settlement_before_an_outcome() {
    let (_server, stores) = stores().await;
    for store in stores {
        let limits = limits(FILE, store);
        let handler = async |charges: Charges| {
            assert_eq!(charges.settle(10).await.expect("an answer").given_back, 20);
            assert_eq!(charges.refund().await.expect("an answer"), 0);
            StatusCode::BAD_GATEWAY
        };
        let app = Router::new().route("/", any(handler).layer(limits.layer("api")));
        assert_eq!(ask(&app, "x-user: a, x-address: 1").await, 502);
        sleep(millis(50)).await;
        until_left(&limits, "a", [290, 6, 890]).await;
    }
}
