//! Operators beside partners: keys of outgoing rules that are let through or blocked, and a partner
//! that holds everything.

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{Request, Response};
use kit::Redis;
use serde_json::{Value, json};
use tidegate::Resilient;
use tidegate::decision::Source;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use kit::PATIENT;

use super::*;

/// The page of these limits.
struct Page(Router);

impl Page {
    fn of(limits: &Limits) -> Self {
        Self(limits.page().allow_changes().show_keys().router())
    }

    async fn post(&self, what: &str, key: &str, seconds: u64) -> u16 {
        let body = json!({"rule": "partner", "key": key, "seconds": seconds});
        self.sent(what, body).await.status().as_u16()
    }

    async fn key(&self, key: &str) -> Value {
        read(
            self.sent("key", json!({"rule": "partner", "key": key}))
                .await,
        )
        .await
    }

    async fn sent(&self, what: &str, body: Value) -> Response<Body> {
        let request = Request::post(format!("/api/{what}"))
            .header("content-type", "application/json")
            .header("x-tidegate", "1")
            .header("host", "127.0.0.1:3000")
            .header("origin", "http://127.0.0.1:3000");
        let request = request.body(Body::from(body.to_string())).expect("valid");
        self.0.clone().oneshot(request).await.expect("an answer")
    }

    async fn limited(&self) -> Value {
        let request = Request::get("/api/limited").header("host", "127.0.0.1:3000");
        let request = request.body(Body::empty()).expect("valid");
        read(self.0.clone().oneshot(request).await.expect("an answer")).await
    }
}

async fn read(answer: Response<Body>) -> Value {
    let body = to_bytes(answer.into_body(), 1 << 26).await.expect("a body");
    serde_json::from_slice(&body).expect("JSON")
}

fn source(refused: &tidegate::layer::Refused) -> Option<Source> {
    refused.decision().map(tidegate::Decision::source)
}

/// What an operator says comes before the partner's; the partner's word is kept.
#[tokio::test(start_paused = true)]
async fn let_through_and_blocked_beside_a_hold() {
    let limits = limits(5);
    let page = Page::of(&limits);
    let partner = limits.outgoing("partner");
    limits
        .hold("partner", "us", 600 * SECOND)
        .await
        .expect("held");
    assert_eq!(page.post("let-through", "us", 60).await, 200);
    for _ in 0..20 {
        let turn = partner.ready("us").await.expect("it is let through");
        turn.heard(
            StatusCode::TOO_MANY_REQUESTS,
            &fields(&[("retry-after", b"900")]),
        );
    }
    settle().await;
    sleep(62 * SECOND).await;
    let left = held(&limits, "us")
        .await
        .expect("the partner's word stands");
    assert!(
        left > 800 * SECOND,
        "a call that is let through is heard: {left:?}"
    );

    assert_eq!(page.post("block", "us", 60).await, 200);
    let refused = partner.ready("us").await.expect_err("it is blocked");
    assert_eq!(source(&refused), Some(Source::Operator));
    assert!(refused.decision().is_some_and(|it| !it.is_on_hold()));
    let shown = page.key("us").await;
    let left = shown["on_hold_s"]
        .as_f64()
        .expect("the page shows the hold");
    assert!((800. ..=900.).contains(&left), "{left}");
    assert_eq!(shown["allowed"], false);
    // A reset lifts the hold, and not the block.
    assert_eq!(page.post("reset", "us", 0).await, 200);
    assert!(partner.ready("us").await.is_err());
    assert_eq!(page.post("block", "us", 0).await, 200);
    drop(partner.ready("us").await.expect("no hold, no block"));
}

/// A call that waits for the end of a hold is denied when its key is blocked, and goes when it is
/// let through.
#[tokio::test(start_paused = true)]
async fn an_operator_reaches_those_who_wait() {
    let limits = limits(5);
    let page = Page::of(&limits);
    limits
        .hold("partner", "us", 600 * SECOND)
        .await
        .expect("held");
    for (what, is_expected) in [("block", false), ("let-through", true)] {
        let patient = limits.outgoing("partner").wait(HOUR);
        let call = tokio::spawn(async move { patient.ready("us").await.is_ok() });
        sleep(5 * SECOND).await;
        assert!(!call.is_finished());
        // A block that outlasts its patience.
        assert_eq!(page.post(what, "us", 86_400).await, 200);
        let begun = Instant::now();
        assert_eq!(call.await.expect("no panic"), is_expected, "{what}");
        assert!(
            begun.elapsed() <= 2 * SECOND,
            "{what}: {:?}",
            begun.elapsed()
        );
        assert_eq!(page.post(what, "us", 0).await, 200);
    }
}

/// The page shows a held key and lifts its hold; a partner that holds 10,000 keys takes no place
/// from the operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partner_that_holds_everything() {
    let server = Redis::start();
    let process = || {
        let store = Resilient::redis(&*server.url, "shop").expect("an address");
        limits(5).store(store.timeout(2 * SECOND))
    };
    let [here, there] = [process(), process()];
    there.join_fleet();
    let page = Page::of(&here);
    for from in (0..10_000_u64).step_by(200) {
        let holds = (from..from + 200).map(|key| here.hold("partner", key, 100 * HOUR));
        for held in futures_util::future::join_all(holds).await {
            assert_eq!(held.expect("held"), HOUR);
        }
        let asks = (from..from + 200).step_by(20).map(|key| held(&there, key));
        for left in futures_util::future::join_all(asks).await {
            assert!(left.is_some_and(|it| it <= HOUR));
        }
    }
    for number in 0..1_000 {
        assert_eq!(
            page.post("block", &format!("b{number}"), 600).await,
            200,
            "{number}"
        );
    }
    assert_ne!(
        page.post("block", "one more", 600).await,
        200,
        "at most 1,000"
    );
    assert_eq!(
        page.post("let-through", "17", 600).await,
        200,
        "a list of its own"
    );
    let begun = Instant::now();
    let obeyed = async |key: &'static str, is_turn: bool| {
        while there.outgoing("partner").ready(key).await.is_ok() != is_turn {
            assert!(begun.elapsed() < PATIENT, "{key} is not obeyed");
            sleep(millis(20)).await;
        }
    };
    obeyed("b999", false).await;
    obeyed("17", true).await;
    assert!(begun.elapsed() < 5 * SECOND, "{:?}", begun.elapsed());
    let blocked = page.limited().await["blocked"].as_array().map(Vec::len);
    assert_eq!(blocked, Some(1_000));
    // Law 4, and the hour is the most of each.
    let mut admin = server.connection();
    let names: Vec<Vec<u8>> = redis::cmd("KEYS")
        .arg("*")
        .query(&mut admin)
        .expect("the keys");
    assert!(names.len() < 20_200, "{} keys", names.len());
    for name in names {
        let left: i64 = redis::cmd("PTTL")
            .arg(&name)
            .query(&mut admin)
            .expect("a time");
        let shown = String::from_utf8_lossy(&name);
        assert_ne!(left, -1, "{shown} stays for ever");
        assert!(
            shown.contains("~fleet") || left <= 3_601_000,
            "{shown}: {left} ms"
        );
    }
    assert_eq!(page.post("reset", "9999", 0).await, 200);
    assert_eq!(held(&there, "9999").await, None, "a reset lifts a hold");
}

/// A store that cannot hold has no hold to show; a hold is about the key, whatever its plan.
#[tokio::test(start_paused = true)]
async fn the_page_looks_in_any_case() {
    let cannot = limits(5).store(kit::stub::Stub::that_cannot_owe());
    let shown = Page::of(&cannot).key("us").await;
    assert_eq!(shown["on_hold_s"], Value::Null, "{shown}");
    assert_eq!(shown["allowed"], true, "{shown}");
    let plain = Limits::new([per_minute("partner", 5)]);
    assert_eq!(Page::of(&plain).key("us").await["on_hold_s"], Value::Null);
    let quotas = tidegate::rule::Quotas::new([tidegate::Quota::per_minute(9)]).expect("valid");
    let planned = Limits::new([partner(5).with_plan("pro", quotas).expect("valid")]);
    let page = Page::of(&planned);
    assert_eq!(page.key("us").await["on_hold_s"], Value::Null);
    drop(planned.check("partner", "us").plan("pro").await);
    planned
        .hold("partner", "us", 60 * SECOND)
        .await
        .expect("held");
    let shown = page.key("us").await;
    assert!(
        shown["on_hold_s"].as_f64().is_some_and(|it| it > 59.),
        "{shown}"
    );
    assert_eq!(shown["allowed"], false, "{shown}");
}
