//! What was used beyond a reservation is charged: by a settlement, by a meter, by a body.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures_util::stream;
use http_body::Frame;
use http_body_util::BodyExt;
use kit::Redis;
use tidegate::decision::Source;
use tidegate::rule::{Share, Subject};
use tidegate::store::{Charges, Settled};
use tidegate::{
    Decision, Key, Limits, MemoryStore, Quota, RateLimitLayer, Resilient, Rule, Store, Take,
};

use crate::{Stores, no_store, send};
use kit::stub::Stub;
use kit::{behind, connect, millis, per_minute};

const FLUSH: Duration = Duration::from_secs(10);

fn limits(store: &Arc<dyn Store>, rule: Rule) -> Limits {
    Limits::new([rule]).store(Arc::clone(store))
}

async fn left(limits: &Limits, path: &str) -> Decision {
    let found = limits.peek(path, Key::default()).await;
    found.expect("a decision").expect("a rule")
}

fn parts(settled: Settled) -> (u64, u64, u64) {
    (settled.given_back, settled.charged, settled.forgiven)
}

/// Above max, as far as may be owed; once; and counted.
#[tokio::test]
async fn a_settlement_charges_what_was_used() {
    for store in &Stores::start().await.all {
        for (at_most, expected) in [
            (None, (0, 16, 4)),
            (Some(0), (0, 6, 14)),
            (Some(99), (0, 20, 0)),
        ] {
            let path = format!("t{}", at_most.unwrap_or(1));
            let mut rule = per_minute(&path, 10).with_cost(4);
            if let Some(units) = at_most {
                rule = rule.with_owe_at_most(units);
            }
            let limits = limits(store, rule);
            let admitted = limits
                .check(&path, Key::default())
                .await
                .expect("a decision");
            let charge = admitted.charge.expect("it was charged");
            let settled = charge.settle(24).await.expect("an answer");
            assert_eq!(parts(settled), expected);
            assert_eq!(
                charge.settle(30).await.expect("an answer"),
                Settled::default()
            );
            assert_eq!(charge.refund().await.expect("an answer"), 0);
            let denied = limits.check(&path, Key::default()).cost(1).await;
            assert!(denied.is_err());
            let snapshot = limits.snapshot();
            let counted = snapshot.rule(&path).expect("a rule");
            assert_eq!(
                (counted.owed_units, counted.forgiven_units),
                (expected.1, expected.2)
            );
            assert_eq!((counted.units, counted.refunded_units), (4, 0));
        }
    }
}

/// All rules of a request are charged no more than they reserved; the one that is named is.
#[tokio::test]
async fn only_a_rule_that_is_named_is_charged_beyond() {
    for store in &Stores::start().await.all {
        let limits = Limits::new([per_minute("requests", 9), per_minute("tokens", 90)]);
        let limits = limits.store(Arc::clone(store));
        let handler = get(async |charges: Charges| {
            let of_none = charges.of("nothing").settle(50).await.expect("an answer");
            assert_eq!(of_none, Settled::default());
            let of_tokens = charges.of("tokens").settle(50).await.expect("an answer");
            let of_all = charges.settle(50).await.expect("an answer");
            format!("{:?} {:?}", parts(of_tokens), parts(of_all))
        });
        let handler = handler
            .layer::<_, std::convert::Infallible>(limits.layer("tokens"))
            .layer(limits.layer("requests"));
        let app = Router::new().route("/", handler);
        let response = send(&app, "/").await;
        assert_eq!(crate::text(response).await, "(0, 49, 0) (0, 0, 0)");
        assert_eq!(left(&limits, "requests").await.remaining(), 8);
        assert_eq!(left(&limits, "tokens").await.remaining(), 40);
    }
}

/// A body settles once: at its end, when it fails, when it is dropped; and not if it used nothing.
#[tokio::test]
async fn a_body_settles_when_it_ends() {
    let frames = |fails: bool| {
        let messages = ["one", "two", "three"].map(|it| Ok(Bytes::from(it)));
        let failure = fails.then(|| Err(std::io::Error::other("the model is gone")));
        Body::from_stream(stream::iter(messages.into_iter().chain(failure)))
    };
    for store in &Stores::start().await.all {
        for (way, read, used) in [
            ("whole", 9, 30),
            ("fails", 9, 30),
            ("left", 2, 20),
            ("unread", 0, 4),
        ] {
            let rule = per_minute(way, 10).with_cost(4).with_owe_at_most(1_000);
            let limits = limits(store, rule);
            let handler = get(async move |charges: Charges| {
                let units = |frame: &Frame<Bytes>| frame.data_ref().map_or(0, |_| 10);
                Body::new(charges.of(way).settle_on_end(frames(way == "fails"), units))
            });
            let app = Router::new().route("/", handler.layer(limits.layer(way)));
            let mut body = send(&app, "/").await.into_body();
            for _ in 0..read {
                if !matches!(body.frame().await, Some(Ok(_))) {
                    break;
                }
            }
            drop(body);
            assert!(limits.flush(FLUSH).await);
            let owed = limits.snapshot().rule(way).expect("a rule").owed_units;
            assert_eq!(4 + owed, used, "{way}");
        }
    }
}

/// In each count without a cost of its own, and in the candidate, too.
#[tokio::test]
async fn each_count_is_charged_what_was_used() {
    use tidegate::key::{Bearer, Everyone};
    use tidegate::rule::Policy;
    for store in &Stores::start().await.all {
        let user = Subject::new("user", Bearer).limit(Quota::per_minute(20));
        let requests = Policy::from(Quota::per_minute(9)).with_cost(1);
        let all = Subject::new("all", Everyone).limit(Quota::per_minute(100));
        let rule = Rule::joint("chat", [user.limit(requests), all]).expect("valid");
        let candidate = per_minute("chat", 200);
        let limits = limits(store, rule.with_cost(5).with_shadow(candidate));
        let admitted = limits
            .check("chat", [("user", "alice"), ("all", "")])
            .await
            .expect("a decision");
        let charge = admitted.charge.expect("it was charged");
        let settled = charge.settle(65).await.expect("an answer");
        assert_eq!(
            parts(settled),
            (0, 35, 25),
            "the fewest, and the most that was forgiven"
        );
        assert!(limits.flush(FLUSH).await);
        let state = limits.peek("chat", [("user", "alice"), ("all", "")]).await;
        let state = state.expect("a decision").expect("a rule");
        let remaining: Vec<_> = state.quotas().iter().map(|it| it.remaining()).collect();
        assert_eq!(remaining, [0, 8, 35]);
        let candidate = Arc::clone(charge.take().rule().shadow().expect("a candidate"));
        let take = Take::new(candidate, Key::from("alice"));
        let state = store.peek(&take).await.expect("a decision");
        assert_eq!(state.remaining(), 135);
    }
}

/// A denial that is remembered does not tell an earlier end than there is; what a lease holds is
/// given back.
#[tokio::test]
async fn what_is_kept_of_a_key_is_void() {
    let clock = tidegate::test_util::ManualClock::default();
    let inner = MemoryStore::new().clock(clock.clone());
    let store = Resilient::new(inner).clock(clock.clone());
    let rule = Arc::new(per_minute("tokens", 10));
    let take = Take::new(rule, Key::default());
    let first = store
        .take(&take.clone().with_cost(1))
        .await
        .expect("a decision");
    clock.set(clock.now() + 20_000_000);
    let receipt = store
        .take(&take.clone().with_cost(9))
        .await
        .expect("a decision");
    let receipt = receipt.receipt().expect("it was charged");
    let denied = store.take(&take).await.expect("a decision");
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(40)));
    assert_eq!(store.owe(&take, &receipt).await.expect("an answer"), 1);
    let denied = store.take(&take).await.expect("a decision");
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
    assert!(first.is_allowed());
}

/// What the fallback has reserved is charged there, and nothing in the store that has come back.
#[tokio::test]
async fn a_reservation_of_the_fallback_is_settled_there() {
    let rule = per_minute("tokens", 100).with_cost(5);
    let memory = MemoryStore::new();
    let store = Resilient::new(no_store())
        .fallback(Share::new(1, 10))
        .fallback_store(memory);
    let take = Take::new(Arc::new(rule), Key::default());
    let decision = store.take(&take).await.expect("a decision");
    assert_eq!(decision.source(), Source::Fallback);
    let receipt = decision.receipt().expect("it was charged");
    let owed = store.owe(&take.clone().with_cost(50), &receipt).await;
    assert_eq!(
        owed.expect("an answer"),
        15,
        "ten once more, of which five were left"
    );
}

/// A meter beyond the client's reach: the last of what it has counted is settled in the background.
#[tokio::test]
async fn a_meter_settles_when_it_is_dropped() {
    let server = Redis::start();
    let proxy = behind(&server, millis(20)).await;
    let store = connect(&proxy.url, millis(500)).await;
    let limits = Limits::new([per_minute("tokens", 10)]).store(store);
    for (units, expected) in [(&[3, 4][..], 7), (&[], 8), (&[u64::MAX, 1], 20)] {
        let admitted = limits
            .check("tokens", Key::default())
            .await
            .expect("a decision");
        let meter = admitted.charge.expect("it was charged").meter();
        units.iter().for_each(|units| meter.add(*units));
        drop(meter);
        assert!(limits.flush(FLUSH).await);
        let counted = limits.snapshot();
        let counted = counted.rule("tokens").expect("a rule");
        assert_eq!(counted.units + counted.owed_units, expected);
    }
    let layer: RateLimitLayer = limits.layer("tokens");
    let app = Router::new().route("/", get(async || "1").layer(layer));
    assert_eq!(send(&app, "/").await.status(), 429);
}

/// What could not be charged beyond a reservation is counted, also where somebody has waited.
#[tokio::test]
async fn a_settlement_without_an_answer_is_lost() {
    let limits = Limits::new([per_minute("tokens", 10)]).store(Stub::that_cannot_owe());
    let lost = |limits: &Limits| {
        limits
            .snapshot()
            .rule("tokens")
            .expect("a rule")
            .refunds_lost
    };
    let admitted = limits.check("tokens", Key::default()).await;
    let charge = admitted
        .expect("a decision")
        .charge
        .expect("it was charged");
    assert!(charge.settle(5).await.is_err());
    assert_eq!(lost(&limits), 1);
    assert_eq!(charge.settle(5).await.expect("once"), Settled::default());
    assert_eq!(lost(&limits), 1);
}
