//! What was used beyond a reservation is charged: by a settlement, by a meter, by a body.

use axum::middleware::{Next, from_fn};

use crate::*;

fn limits<const N: usize>(rules: [Rule; N], store: impl Store) -> Limits {
    Limits::new(rules).store(store)
}

fn everyone() -> Key {
    Key::default()
}

async fn charge(limits: &Limits, path: &str) -> Charge {
    let admitted = limits.check(path, everyone()).await.expect("a decision");
    admitted.charge.expect("it was charged")
}

/// What is reserved, settled, metered, and left.
#[test]
fn scenes() {
    kit::call_steps::play_calls("tests/layer/owed.txt");
}

/// A denial that is remembered does not tell an earlier end than there is.
#[tokio::test]
async fn what_is_kept_of_a_key_is_void() {
    let clock = ManualClock::default();
    let store = Resilient::new(MemoryStore::new().clock(clock.clone())).clock(clock.clone());
    let take = Take::new(Arc::new(per_minute("tokens", 10)), everyone());
    let ask = async |cost| {
        let take = take.clone().with_cost(cost);
        store.take(&take).await.expect("a decision")
    };
    assert!(ask(1).await.is_allowed());
    clock.set(clock.now() + 20_000_000);
    let receipt = ask(9).await.receipt().expect("it was charged");
    assert_eq!(ask(1).await.retry_after(), Some(40 * SECOND));
    assert_eq!(store.owe(&take, &receipt).await.expect("an answer"), 1);
    assert_eq!(ask(1).await.retry_after(), Some(60 * SECOND));
}

/// What the fallback has reserved is charged there, and nothing in the store that has come back.
#[tokio::test]
async fn a_reservation_of_the_fallback_is_settled_there() {
    let rule = per_minute("tokens", 100).with_cost(5);
    let store = Resilient::new(no_store())
        .fallback(Share::new(1, 10))
        .fallback_store(MemoryStore::new());
    let take = Take::new(Arc::new(rule), everyone());
    let decision = store.take(&take).await.expect("a decision");
    assert_eq!(decision.source(), Source::Fallback);
    let receipt = decision.receipt().expect("it was charged");
    let owed = store.owe(&take.with_cost(50), &receipt).await;
    // Ten once more, of which five were left.
    assert_eq!(owed.expect("an answer"), 15);
}

/// A meter beyond the client's reach: the last of what it has counted is settled in the background.
#[tokio::test]
async fn a_meter_settles_when_it_is_dropped() {
    let server = Redis::start();
    let proxy = behind(&server, millis(20)).await;
    let store = connect(&proxy.url, PATIENT).await;
    let limits = limits([per_minute("tokens", 10)], store);
    let largest = [u64::MAX, u64::MAX, 1];
    for (units, expected) in [(&[3, 4][..], 7), (&[], 8), (&largest, 20)] {
        let meter = charge(&limits, "tokens").await.meter();
        units.iter().for_each(|units| meter.add(*units));
        let added = units.iter().fold(0_u64, |all, it| all.saturating_add(*it));
        assert_eq!(meter.used(), added);
        drop(meter);
        assert!(limits.flush(PATIENT).await);
        let counted = counted(&limits, "tokens");
        assert_eq!(counted.units + counted.owed_units, expected);
    }
    assert_eq!(status(&app(limits.layer("tokens")), "/").await, 429);
}

/// The recipe of docs/cookbook.md: a middleware outside of the layer reads it.
#[tokio::test(start_paused = true)]
async fn a_cost_that_stands_in_the_body() {
    #[derive(Clone)]
    struct Cost(u64);
    async fn price(request: Request<Body>, next: Next) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let Ok(body) = axum::body::to_bytes(body, 1 << 20).await else {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        };
        let asked = serde_json::from_slice::<Value>(&body);
        let asked = asked.ok().and_then(|it| it["max_tokens"].as_u64());
        head.extensions.insert(Cost(asked.unwrap_or(1_000).max(50)));
        next.run(Request::from_parts(head, body.into())).await
    }
    let limits = limits([per_minute("chat", 2_000)], paused());
    let cost = |head: &Parts| head.extensions.get::<Cost>().map_or(1, |it| it.0);
    let app = Router::new()
        .route("/", axum::routing::post(async |body: String| body))
        .route_layer(limits.layer("chat").cost(cost))
        .route_layer(from_fn(price));
    for (body, status, left_then) in [
        (r#"{"max_tokens":300}"#, 200, 1_700),
        ("no JSON", 200, 700),
        (r#"{"max_tokens":0}"#, 200, 650),
        (r#"{"max_tokens":700}"#, 429, 650),
        (&"x".repeat(2 << 20), 413, 650),
    ] {
        let request = Request::post("/").body(Body::from(body.to_owned()));
        let answer = app.clone().oneshot(request.expect("valid")).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), status);
        if status == 200 {
            let echoed = answer.into_body().collect().await.expect("a body");
            assert_eq!(echoed.to_bytes(), body);
        }
        assert_eq!(kit::left(&limits, "chat", everyone()).await, left_then);
    }
}

/// What could not be charged beyond a reservation is counted, also where somebody has waited.
#[tokio::test]
async fn a_settlement_without_an_answer_is_lost() {
    let limits = limits([per_minute("tokens", 10)], Stub::that_cannot_owe());
    let lost = || counted(&limits, "tokens").refunds_lost;
    let charge = charge(&limits, "tokens").await;
    assert!(charge.settle(5).await.is_err());
    assert_eq!(lost(), 1);
    assert_eq!(charge.settle(5).await.expect("once"), Settled::default());
    assert_eq!(lost(), 1);
}

/// The recipe of docs/cookbook.md: what a budget has left below an estimate is reserved, and settled.
#[tokio::test(start_paused = true)]
async fn the_last_units_of_a_budget() {
    let month = Policy::calendar(tidegate::rule::Period::MONTH, 100);
    let rule = Rule::with_policies("chat", [month]).expect("valid");
    let limits = Limits::new([rule.with_settling(true)]).store(paused());
    let reserve = async || {
        let mut answer = limits.check("chat", "acme").cost(50).await;
        let denied = answer.as_ref().err().and_then(|it| it.decision());
        if let Some(left @ 1..50) = denied.map(|it| it.remaining()) {
            answer = limits.check("chat", "acme").cost(left).await;
        }
        answer
    };
    limits.check("chat", "acme").cost(60).await.expect("room");
    let last = reserve().await.expect("40 are left").charge;
    let settled = last.expect("it was charged").settle(30).await;
    assert_eq!(settled.expect("an answer").given_back, 10);
    let decision = reserve().await.expect("10 are left").decision;
    assert_eq!(decision.map(|it| it.remaining()), Some(0));
    assert!(reserve().await.is_err());
}
