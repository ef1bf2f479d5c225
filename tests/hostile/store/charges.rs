//! Law 15: whatever is given back, and however often it is asked for, returns only units that this
//! caller was charged and that still count.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use kit::Redis;
use kit::proxy::{Mode, Proxy};
use kit::random::Random;
use tidegate::decision::{Receipt, Source};
use tidegate::rule::{Share, SharedRules};
use tidegate::store::{Charge, Charges, StoreErrorKind};
use tidegate::test_util::ManualClock;
use tidegate::{
    Algorithm, FailOpen, Key, MemoryStore, Quota, RateLimitLayer, RedisStore, Resilient, Rule,
    Rules, Store, Take,
};
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};

use kit::clocked::{Clocked, Stores, assert_units, by, charge, remaining, take_of};
use kit::{HOUR, PATIENT, ask_all, behind, connect, is_allowed, millis, run};

/// However many clones, copies and direct questions ask at once, a receipt gives back once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_ask_for_one_charge() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", clocked.name);
            let take = take_of(&by(algorithm, "once", 10, HOUR), &Key::default(), 4);
            let mine = clocked.charge(&take).await;
            let other = clocked.charge(&take).await;
            let asking = (0..90).map(|at| {
                let mine = mine.clone();
                tokio::spawn(async move {
                    if at % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                    mine.refund().await.expect("an answer")
                })
            });
            let mut back = 0;
            for answer in join_all(asking).await {
                back += answer.expect("no panic");
            }
            assert_eq!(back, 4, "{case}");
            assert_eq!(clocked.remaining(&take).await, 6, "{case}");
            assert_eq!(other.refund().await.expect("an answer"), 4, "{case}");
            assert_eq!(clocked.remaining(&take).await, 10, "{case}");
        }
    }
}

/// What was charged a window ago gives nothing back, and takes nothing from who came later.
#[tokio::test]
async fn a_charge_whose_window_is_over() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = by(algorithm, "over", 6, HOUR);
            let early = clocked.charge(&take_of(&rule, &Key::default(), 6)).await;
            // A sliding window gives units back by up to a sub-window late.
            clocked.advance(HOUR + HOUR / 32);
            let late = clocked.charge(&take_of(&rule, &Key::default(), 6)).await;
            for _ in 0..3 {
                assert_eq!(early.refund().await.expect("an answer"), 0, "{case}");
            }
            assert_eq!(clocked.remaining(late.take()).await, 0, "{case}");
            assert_eq!(late.refund().await.expect("an answer"), 6, "{case}");
            assert_eq!(clocked.remaining(late.take()).await, 6, "{case}");
        }
    }
}

/// Two callers of one instant: what one gives back is its own, in every order.
#[tokio::test]
async fn neighbours_of_one_instant() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = by(algorithm, "instant", 30, HOUR);
            let costs = [5, 1, 7, 2, 9, 6];
            let mut charges = Vec::new();
            for cost in costs {
                charges.push(clocked.charge(&take_of(&rule, &Key::default(), cost)).await);
            }
            let look = take_of(&rule, &Key::default(), 1);
            let order = [3, 0, 5, 0, 3, 1, 4, 2, 2];
            let mut free = 0;
            for (at, again) in order.into_iter().enumerate() {
                let was_asked_before = order[..at].contains(&again);
                let expected = if was_asked_before { 0 } else { costs[again] };
                let back = charges[again].refund().await.expect("an answer");
                assert_eq!(back, expected, "{case}: charge {again}");
                free += back;
                assert_eq!(clocked.remaining(&look).await, free, "{case}");
            }
            assert_eq!(free, 30, "{case}");
        }
    }
}

/// A part of a take may be given back, and then the rest is kept.
#[tokio::test]
async fn a_part_is_given_back() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = by(algorithm, "part", 8, HOUR);
            let charge = clocked.charge(&take_of(&rule, &Key::default(), 5)).await;
            let receipt = charge.receipt();
            let refund = |cost| {
                let take = take_of(&rule, &Key::default(), cost);
                let answer = clocked.store.refund(&take, &receipt);
                async move { answer.await.expect("an answer") }
            };
            assert_eq!(refund(2).await, 2, "{case}");
            assert_eq!(clocked.remaining(charge.take()).await, 5, "{case}");

            let more = clocked.charge(&take_of(&rule, &Key::default(), 3)).await;
            let dearer = take_of(&rule, &Key::default(), u64::MAX);
            let back = clocked.store.refund(&dearer, &more.receipt()).await;
            assert_eq!(
                back.expect("an answer"),
                3,
                "{case}: no more than was charged"
            );
        }
    }
}

/// Receipts that no store gave take nothing from anybody, and harm nobody.
#[tokio::test]
async fn receipts_that_were_made_up() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = by(algorithm, "made-up", 8, HOUR);
            let charge = clocked.charge(&take_of(&rule, &Key::default(), 5)).await;
            let (stamp, serial) = (charge.receipt().stamp(), charge.receipt().serial());
            let made_up = [
                (0, 0, 5),
                (stamp - 1, serial, 5),
                (stamp + 1, serial, 5),
                (stamp + 3_600_000_000, serial, 5),
                ((1 << 53) - 1, serial, 5),
                (stamp - 3_600_000_000, serial, 5),
                (stamp, (1 << 52) - 1, 5),
                (0, 0, 0),
                (stamp, serial, 0),
            ];
            for (stamp, serial, units) in made_up {
                let receipt = Receipt::new(stamp, serial, units);
                let back = clocked.store.refund(charge.take(), &receipt).await;
                if let Ok(back) = back {
                    assert!(back <= units, "{case}: {back} for {receipt:?}");
                }
                let left = clocked.remaining(charge.take()).await;
                assert!(left <= 8, "{case}: {left} behind {receipt:?}");
            }
            let back = charge.refund().await.expect("an answer");
            assert!(back <= 5, "{case}");
            assert!(clocked.remaining(charge.take()).await <= 8, "{case}");
        }
    }
}

/// What was given back whole is taken by another caller in the same instant, also after the store
/// dropped the key in between: the first receipt is worth nothing any more.
#[tokio::test]
async fn taken_again_in_the_same_instant() {
    let mut stores = Stores::start().await;
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_000);
    let small = MemoryStore::with_max_keys(1).clock(clock.clone());
    stores.all.push(Clocked {
        name: "small",
        store: Arc::new(small),
        clock,
    });
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            for micros in [0, 1, 999] {
                let case = format!("{} {algorithm:?} {micros} us", clocked.name);
                clocked
                    .clock
                    .set(clocked.clock.now() / 1_000 * 1_000 + 1_000);
                let rule = by(algorithm, "again", 5, HOUR);
                let take = take_of(&rule, &Key::from(micros.to_string().as_str()), 5);
                let early = clocked.charge(&take).await;
                assert_eq!(early.refund().await.expect("an answer"), 5, "{case}");
                // Of another key, for which the small store needs room.
                let other = take_of(&rule, &Key::from("other"), 5);
                let other = clocked.store.take(&other).await.ok();
                let other = other.and_then(|decision| decision.receipt());
                if let Some(receipt) = other {
                    let take = take_of(&rule, &Key::from("other"), 5);
                    let back = clocked.store.refund(&take, &receipt).await;
                    assert_eq!(back.expect("an answer"), 5, "{case}");
                }
                clocked.advance(Duration::from_micros(micros));
                let Ok(late) = clocked.store.take(&take).await else {
                    // It remembers what was given back of the other key.
                    assert_eq!(clocked.name, "small");
                    clocked.advance(HOUR * 2);
                    continue;
                };
                let receipt = late.receipt().expect("it was charged");
                let late = Charge::new(Arc::clone(&clocked.store), take.clone(), receipt);
                assert_eq!(early.refund().await.expect("an answer"), 0, "{case}");
                assert_eq!(clocked.remaining(&take).await, 0, "{case}");
                assert_eq!(late.refund().await.expect("an answer"), 5, "{case}");
                assert_eq!(late.refund().await.expect("an answer"), 0, "{case}");
                clocked.advance(HOUR * 2);
            }
        }
    }
}

/// The largest costs that there are, charged and given back so often that their sum is beyond every
/// number that a store can write down.
#[tokio::test]
async fn the_largest_costs() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            for micros in [0, 1, 1_000] {
                let case = format!("{} {algorithm:?} {micros} us", clocked.name);
                let rule = by(algorithm, "largest", Quota::MAX_UNITS, Quota::MAX_WINDOW);
                let key = Key::from(micros.to_string().as_str());
                let take = take_of(&rule, &key, Quota::MAX_UNITS / 2);
                let mut all: Vec<Charge> = Vec::new();
                for round in 0..40 {
                    clocked.advance(Duration::from_micros(micros));
                    let decision = clocked.store.take(&take).await.expect("a decision");
                    let Some(receipt) = decision.receipt() else {
                        panic!("{case}, round {round}: {decision:?}");
                    };
                    assert!(
                        receipt.serial() < 1 << 52,
                        "{case}, round {round}: {receipt:?}"
                    );
                    let mine = Charge::new(Arc::clone(&clocked.store), take.clone(), receipt);
                    for charge in &all {
                        let back = charge.refund().await.expect("an answer");
                        assert_eq!(back, 0, "{case}, round {round}: {:?}", charge.receipt());
                    }
                    let back = mine.refund().await.expect("an answer");
                    assert_eq!(back, Quota::MAX_UNITS / 2, "{case}, round {round}");
                    all.push(mine);
                }
                assert_eq!(clocked.remaining(&take).await, Quota::MAX_UNITS, "{case}");
            }
        }
    }
}

/// The store has lost its data: nothing of what counts there by now is given back.
#[tokio::test]
async fn a_store_that_lost_its_data() {
    let stores = Stores::start().await;
    let clocked = &stores.all[1];
    for algorithm in Algorithm::ALL {
        let rule = by(algorithm, "lost", 5, HOUR);
        let early = clocked.charge(&take_of(&rule, &Key::default(), 5)).await;
        let half = by(algorithm, "lost-half", 5, HOUR);
        let other = clocked.charge(&take_of(&half, &Key::default(), 2)).await;
        kit::run(&stores.server, "FLUSHALL");
        assert_eq!(other.refund().await.expect("an answer"), 0, "{algorithm:?}");
        // The log's entries are a millisecond long.
        clocked.advance(millis(1));
        let late = clocked.charge(&take_of(&rule, &Key::default(), 5)).await;
        assert_eq!(early.refund().await.expect("an answer"), 0, "{algorithm:?}");
        assert_eq!(clocked.remaining(late.take()).await, 0, "{algorithm:?}");
        assert_eq!(late.refund().await.expect("an answer"), 5, "{algorithm:?}");
    }
}

/// Only the record of what was given back is lost: then still no window holds more than its max of
/// units that were not given back.
#[tokio::test]
async fn a_server_that_evicted_what_was_given_back() {
    let stores = Stores::start().await;
    let clocked = &stores.all[1];
    for algorithm in Algorithm::ALL {
        let rule = by(algorithm, "evicted", 5, HOUR);
        let mine = clocked.charge(&take_of(&rule, &Key::default(), 2)).await;
        let other = clocked.charge(&take_of(&rule, &Key::default(), 3)).await;
        assert_eq!(mine.refund().await.expect("an answer"), 2, "{algorithm:?}");
        let key = Key::default();
        let name = Take::new(Arc::clone(&rule), key.clone()).name(RedisStore::DEFAULT_PREFIX);
        let name = name.to_string();
        let exists: u64 = redis::cmd("EXISTS")
            .arg(&name)
            .arg(format!("{{{name}}}:back"))
            .query(&mut stores.server.connection())
            .expect("a running server");
        assert!(exists >= 1, "the page names these keys");
        kit::run(&stores.server, &format!("DEL {name}"));
        for charge in [&mine, &other] {
            let back = charge.refund().await.expect("an answer");
            assert_eq!(back, 0, "{algorithm:?}: nothing counts any more");
        }
        assert_eq!(clocked.remaining(mine.take()).await, 5, "{algorithm:?}");
    }
}

/// A rule with other quotas goes on with its counts: a charge of the earlier rule is still worth
/// what it was.
#[tokio::test]
async fn a_rule_with_other_quotas() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            for max in [4, 5, 20] {
                let case = format!("{} {algorithm:?} {max}", clocked.name);
                let key = Key::from(max.to_string().as_str());
                let early = by(algorithm, "other", 10, HOUR);
                let later = by(algorithm, "other", max, HOUR);
                let mine = clocked.charge(&take_of(&early, &key, 3)).await;
                let look = take_of(&later, &key, 1);
                assert_eq!(clocked.remaining(&look).await, max - 3, "{case}");
                let theirs = clocked.charge(&look).await;
                assert_eq!(mine.refund().await.expect("an answer"), 3, "{case}");
                assert_eq!(mine.refund().await.expect("an answer"), 0, "{case}");
                assert_eq!(clocked.remaining(&look).await, max - 1, "{case}");
                assert_eq!(theirs.refund().await.expect("an answer"), 1, "{case}");
                assert_eq!(clocked.remaining(&look).await, max, "{case}");
            }
        }
    }
}

/// A rule with another algorithm starts fresh: a charge of the earlier one returns nothing of it.
#[tokio::test]
async fn a_rule_with_another_algorithm() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for early in Algorithm::ALL {
            for later in Algorithm::ALL.into_iter().filter(|later| *later != early) {
                let case = format!("{} {early:?} {later:?}", clocked.name);
                let key = Key::from(case.as_str());
                let (early, later) = (by(early, "algo", 5, HOUR), by(later, "algo", 5, HOUR));
                let mine = clocked.charge(&take_of(&early, &key, 5)).await;
                let theirs = clocked.charge(&take_of(&later, &key, 5)).await;
                assert_eq!(mine.refund().await.expect("an answer"), 5, "{case}");
                assert_eq!(clocked.remaining(theirs.take()).await, 0, "{case}");
                assert_eq!(clocked.remaining(mine.take()).await, 5, "{case}");
                assert_eq!(theirs.refund().await.expect("an answer"), 5, "{case}");
            }
        }
    }
}

fn request() -> Request<Body> {
    Request::get("/").body(Body::empty()).expect("valid")
}

async fn send(app: &Router) -> Response<Body> {
    app.clone()
        .oneshot(request())
        .await
        .expect("axum does not fail")
}

/// All rules are replaced while a handler runs: what it gives back goes where it was charged.
#[tokio::test]
async fn rules_that_are_replaced_under_a_handler() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for later in Algorithm::ALL {
            let early = by(Algorithm::SlidingLog, "replaced", 5, HOUR);
            let later = by(later, "replaced", 7, HOUR);
            let rules = |rule: &Arc<Rule>| [Rule::clone(rule)].into_iter().collect::<Rules>();
            let shared = SharedRules::new(rules(&early));
            let layer = RateLimitLayer::from_rules(&shared, "replaced", Arc::clone(&clocked.store));
            let handler = {
                let (shared, later) = (shared.clone(), rules(&later));
                async move |charges: Charges| {
                    shared.replace(later.clone());
                    tokio::task::yield_now().await;
                    charges.refund().await.expect("an answer").to_string()
                }
            };
            let app = Router::new().route("/", get(handler).layer(layer));
            let response = send(&app).await;
            assert_eq!(response.status(), StatusCode::OK);
            for rule in [&early, &later] {
                let look = take_of(rule, &Key::default(), 1);
                let max = rule.quotas()[0].max();
                assert_eq!(clocked.remaining(&look).await, max, "{}", clocked.name);
            }
        }
    }
}

/// Layers of one path and one store charge twice, and give back twice, but not more, whoever asks:
/// the handler from many tasks, and code outside of the layers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_layers_of_one_path() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = by(algorithm, "nested", 9, HOUR);
            let layer = || {
                RateLimitLayer::from_rule(Rule::clone(&rule).with_cost(3))
                    .store(Arc::clone(&clocked.store))
            };
            let total = Arc::<AtomicU64>::default();
            let handler = {
                let total = Arc::clone(&total);
                async move |charges: Charges| {
                    assert_eq!(charges.len(), 3);
                    let charges = Arc::new(charges);
                    let asking = (0..16).map(|_| {
                        let (charges, total) = (Arc::clone(&charges), Arc::clone(&total));
                        tokio::spawn(async move {
                            let back = charges.refund().await.expect("an answer");
                            total.fetch_add(back, Ordering::Relaxed);
                        })
                    });
                    for asked in join_all(asking).await {
                        asked.expect("no panic");
                    }
                }
            };
            let app = Router::new().route("/", get(handler).layer((layer(), layer(), layer())));
            for _ in 0..3 {
                let response = send(&app).await;
                assert_eq!(response.status(), StatusCode::OK, "{case}");
                let charges = Charges::from_extensions(response.extensions());
                assert!(!charges.is_empty(), "it was charged");
                assert_eq!(charges.refund().await.expect("an answer"), 0, "{case}");
            }
            assert_eq!(total.load(Ordering::Relaxed), 27, "{case}");
            let look = take_of(&rule, &Key::default(), 1);
            assert_eq!(clocked.remaining(&look).await, 9, "{case}");
        }
    }
}

/// A request that waited has the charge of the take that was allowed, and no other.
#[tokio::test(start_paused = true)]
async fn a_request_that_waited() {
    for algorithm in Algorithm::ALL {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new().tokio_clock());
        let rule = by(algorithm, "waited", 1, Duration::from_secs(10));
        let layer = RateLimitLayer::from_rule(Rule::clone(&rule))
            .store(Arc::clone(&store))
            .wait(Duration::from_secs(60));
        let handler = async |charges: Charges| {
            assert_eq!(charges.len(), 1);
            charges.refund().await.expect("an answer").to_string()
        };
        let app = Router::new().route("/", get(handler).layer(layer));
        let first = take_of(&rule, &Key::default(), 1);
        let first = charge(&store, &first).await;
        let began = tokio::time::Instant::now();
        // Each of them waits for the first, and gives back its own; then the next one goes.
        let answers = join_all((0..5).map(|_| send(&app))).await;
        for answer in &answers {
            assert_eq!(answer.status(), StatusCode::OK, "{algorithm:?}");
        }
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(10), "{algorithm:?}: {took:?}");
        assert!(took < Duration::from_secs(20), "{algorithm:?}: {took:?}");
        assert_eq!(first.refund().await.expect("an answer"), 0, "{algorithm:?}");
        assert_eq!(remaining(&*store, first.take()).await, 1, "{algorithm:?}");
    }
}

/// What is charged is what the request costs; what costs nothing, is exempt, or was admitted
/// without a decision hides no charge of the layer around it, and adds none.
#[tokio::test]
async fn costs_and_layers_that_charge_nothing() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let gone = RedisStore::connect_lazy("redis://127.0.0.1:1").expect("an address");
    let outer = RateLimitLayer::new("outer", HOUR, 100)
        .store(Arc::clone(&store))
        .cost(|head| {
            head.headers
                .get("cost")
                .map_or(0, |cost| cost.as_bytes()[0].into())
        });
    let handler = get(async |charges: Charges| {
        if charges.is_empty() {
            return "none".to_owned();
        }
        assert_eq!(charges.len(), 1);
        charges.refund().await.expect("an answer").to_string()
    });
    let layers = (
        RateLimitLayer::new("free", HOUR, 100)
            .cost(|_| 0)
            .store(Arc::clone(&store)),
        RateLimitLayer::new("exempt", HOUR, 100)
            .exempt(|_| true)
            .store(Arc::clone(&store)),
        RateLimitLayer::new("open", HOUR, 100)
            .store(gone)
            .on_error(FailOpen),
    );
    let app = Router::new().route("/", handler.layer(layers)).layer(outer);
    let rule = by(Algorithm::SlidingLog, "outer", 100, HOUR);
    for (cost, expected) in [(None, "none"), (Some("\t"), "9"), (Some("d"), "100")] {
        let mut request = request();
        if let Some(cost) = cost {
            // A tab is 9, `d` is 100.
            let value = http::HeaderValue::from_bytes(cost.as_bytes()).expect("valid");
            request.headers_mut().insert("cost", value);
        }
        let response = app.clone().oneshot(request).await.expect("never fails");
        assert_eq!(response.status(), StatusCode::OK);
        let body = axum::body::to_bytes(response.into_body(), 100).await;
        assert_eq!(body.expect("a body"), expected);
        let look = take_of(&rule, &Key::default(), 1);
        assert_eq!(remaining(&*store, &look).await, 100);
    }
}

/// A server that can be stopped, with a fallback around it.
async fn with_fallback() -> (Redis, RedisStore, Arc<dyn Store>) {
    let server = Redis::start();
    let store = connect(&server.url, millis(50)).await;
    let resilient = Resilient::new(store.clone())
        .fallback(Share::of_processes(1))
        .probe_every(millis(20))
        .build();
    (server, store, resilient)
}

/// Asks until this store decides.
async fn decided_by(store: &dyn Store, take: &Take, source: Source) -> tidegate::Decision {
    let began = Instant::now();
    loop {
        let decision = store.take(take).await.expect("a decision");
        if decision.source() == source {
            return decision;
        }
        assert!(began.elapsed() < PATIENT, "{source:?} never decides");
        sleep(millis(5)).await;
    }
}

/// What a fallback charged is given back there, also once the server is back, and nothing of what
/// the server counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_of_the_fallback() {
    let (server, direct, store) = with_fallback().await;
    let (direct, other) = (direct.timeout(PATIENT), kit::rule("other", 1_000_000, HOUR));
    let other = take_of(&other, &Key::default(), 1);
    for algorithm in Algorithm::ALL {
        let take = take_of(&by(algorithm, "fallback", 10, HOUR), &Key::default(), 4);
        server.signal("STOP");
        decided_by(&*store, &other, Source::Fallback).await;
        let decision = decided_by(&*store, &take, Source::Fallback).await;
        let receipt = decision.receipt().expect("it was charged");
        let local = Charge::new(Arc::clone(&store), take.clone(), receipt);
        server.signal("CONT");
        decided_by(&*store, &other, Source::Redis).await;
        let theirs = direct.take(&take).await.expect("a decision");
        let before = remaining(&direct, &take).await;
        let back = local.refund().await.expect("an answer");
        assert_units(algorithm, back, 4);
        assert_eq!(local.refund().await.expect("an answer"), 0, "{algorithm:?}");
        assert_eq!(remaining(&direct, &take).await, before, "{algorithm:?}");
        let receipt = theirs.receipt().expect("it was charged");
        let back = store.refund(&take, &receipt).await;
        assert_units(algorithm, back.expect("an answer"), 4);

        server.signal("STOP");
        decided_by(&*store, &other, Source::Fallback).await;
        let left = store.peek(&take).await.expect("a decision");
        assert_eq!(left.source(), Source::Fallback);
        // The fallback got it back.
        assert_units(algorithm, left.remaining(), 10);
        server.signal("CONT");
        decided_by(&*store, &other, Source::Redis).await;
    }
}

/// What the server charged is not given back by the fallback while the server is away: the refund
/// is an error, and the charge is not given back any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_of_a_server_that_is_away() {
    let (server, direct, store) = with_fallback().await;
    let (direct, other) = (direct.timeout(PATIENT), kit::rule("other", 1_000_000, HOUR));
    let other = take_of(&other, &Key::default(), 1);
    for algorithm in Algorithm::ALL {
        let take = take_of(&by(algorithm, "away", 10, HOUR), &Key::default(), 4);
        let charges = [charge(&store, &take).await, charge(&store, &take).await];
        server.signal("STOP");
        let began = Instant::now();
        let error = charges[0].refund().await.expect_err("nobody answers");
        let kinds = [StoreErrorKind::Timeout, StoreErrorKind::Unavailable];
        assert!(kinds.contains(&error.kind()), "{algorithm:?}: {error}");
        assert!(began.elapsed() < Duration::from_secs(2), "law 6");
        let local = decided_by(&*store, &take, Source::Fallback).await;
        assert!(
            local.remaining() <= 6,
            "{algorithm:?}: nothing was given back here"
        );
        server.signal("CONT");
        decided_by(&*store, &other, Source::Redis).await;
        assert_eq!(charges[0].refund().await.expect("no question"), 0);
        // The server may have heard the question, and answered nobody.
        let left = remaining(&direct, &take).await;
        assert!(left <= 6, "{algorithm:?}: {left}");
        let back = charges[1].refund().await.expect("an answer");
        assert_units(algorithm, back, 4);
        assert!(remaining(&direct, &take).await >= left + back);
    }
}

/// The answer to a refund is lost: to ask again does nothing, also after another caller took what
/// was given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_refund() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let direct = connect(&server.url, PATIENT).await;
    for algorithm in Algorithm::ALL {
        let store: Arc<dyn Store> = Arc::new(connect(&proxy.url, millis(100)).await);
        let take = take_of(&by(algorithm, "lost", 4, HOUR), &Key::default(), 4);
        let mine = charge(&store, &take).await;
        proxy.all(Mode::LoseReplies(1));
        let lost = mine.refund().await;
        assert!(lost.is_err(), "{algorithm:?}: {lost:?}");
        proxy.all(Mode::Pass);
        // It was done all the same.
        let theirs = direct.take(&take.clone().with_cost(3)).await;
        let theirs = theirs.expect("a decision");
        assert!(theirs.is_allowed(), "{algorithm:?}: {theirs:?}");
        let before = remaining(&direct, &take).await;
        let began = Instant::now();
        let back = loop {
            match mine.refund().await {
                Ok(back) => break back,
                Err(error) => assert!(began.elapsed() < PATIENT, "{error}"),
            }
            sleep(millis(5)).await;
        };
        assert_eq!(back, 0, "{algorithm:?}: it is another caller's");
        assert_eq!(remaining(&direct, &take).await, before, "{algorithm:?}");
        let receipt = theirs.receipt().expect("it was charged");
        direct.refund(&take, &receipt).await.expect("an answer");
    }
}

/// Refunds that are dropped at any moment have happened or not; asking again does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_that_are_dropped() {
    let server = Redis::start();
    let proxy = behind(&server, millis(10)).await;
    let store: Arc<dyn Store> = Arc::new(connect(&proxy.url, PATIENT).await);
    for algorithm in Algorithm::ALL {
        let take = take_of(&by(algorithm, "dropped", 200, HOUR), &Key::default(), 2);
        let charges = join_all((0..100).map(|_| charge(&store, &take))).await;
        assert_eq!(remaining(&*store, &take).await, 0);
        drop(charges[0].refund());
        assert_eq!(
            remaining(&*store, &take).await,
            0,
            "{algorithm:?}: never begun"
        );
        let dropped = charges.iter().enumerate().map(async |(at, charge)| {
            let after = Duration::from_micros(at as u64 * 200);
            timeout(after, charge.refund()).await.is_err()
        });
        let dropped = join_all(dropped).await;
        assert!(dropped.contains(&true), "{algorithm:?}");
        // Those that were dropped have been given back, or are not any more.
        sleep(millis(100)).await;
        let left = remaining(&*store, &take).await;
        let answered = dropped.iter().filter(|is_dropped| !**is_dropped).count() as u64;
        assert!(left + 1 >= 2 * answered, "{algorithm:?}: {left}");
        for charge in &charges {
            let back = charge.refund().await.expect("an answer");
            // A future that was dropped before its first poll had asked for nothing.
            assert!(back <= 2, "{algorithm:?}");
        }
        for charge in &charges {
            assert_eq!(charge.refund().await.expect("an answer"), 0);
        }
    }
}

/// Ten thousand refunds at once, each asked for twice: each gives back once. They are of a hundred
/// keys: a refund from a long log takes the server so long that a thousand in one flight look like
/// a server that hangs. On a busy machine some do nevertheless, and are asked for once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_refunds() {
    const KEYS: usize = 100;
    const MANY: u64 = 100;
    let server = Redis::start();
    let stores: [Arc<dyn Store>; 2] = [
        Arc::new(connect(&server.url, PATIENT).await),
        Arc::new(MemoryStore::new()),
    ];
    for store in &stores {
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", store.name());
            let rule = by(algorithm, "many", MANY, HOUR * 87_600);
            let keys = (0..KEYS).map(|key| take_of(&rule, &Key::from(key.to_string().as_str()), 1));
            let keys: Vec<_> = keys.collect();
            let takes = keys.iter().cycle().take(KEYS * MANY as usize);
            let takes: Vec<_> = takes.cloned().collect();
            let decisions = ask_all(&**store, &takes).await.expect("decisions");
            let charges = takes.iter().zip(decisions.iter()).map(|(take, decision)| {
                let receipt = decision.receipt().expect("it was charged");
                Charge::new(Arc::clone(store), take.clone(), receipt)
            });
            let charges: Vec<_> = charges.collect();
            for take in &keys {
                assert_eq!(remaining(&**store, take).await, 0, "{case}");
            }
            let (began, mut back) = (Instant::now(), [0; KEYS]);
            let (mut rounds, mut is_known) = (0, true);
            while rounds < 2 {
                rounds += 1;
                // As many as wait at once at most.
                let all = charges.iter().map(|charge| async {
                    let take = charge.take().clone();
                    let again = Charge::new(charge.store().clone(), take, charge.receipt());
                    again.refund().await
                });
                for (at, answer) in join_all(all).await.into_iter().enumerate() {
                    match answer {
                        Ok(units) => back[at % KEYS] += units,
                        // Nobody knows whether it was given back.
                        Err(error) => {
                            let lost = [StoreErrorKind::Timeout, StoreErrorKind::Unavailable];
                            assert!(lost.contains(&error.kind()), "{error}");
                            assert!(began.elapsed() < 5 * PATIENT, "{error}");
                            (rounds, is_known) = (0, false);
                        }
                    }
                }
            }
            for (take, back) in keys.iter().zip(back) {
                assert!(back <= MANY, "{case}: {back}");
                if is_known {
                    assert_units(algorithm, back, MANY);
                }
                assert_units(algorithm, remaining(&**store, take).await, MANY);
            }
        }
    }
}

/// Refunds in the order of arrival: a take that was asked before a refund of its key is denied, one
/// that was asked after it is allowed, however many travel together.
#[tokio::test]
async fn refunds_in_the_order_of_arrival() {
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_000);
    let store = connect(&proxy.url, PATIENT).await.clock(clock.clone());
    let store: Arc<dyn Store> = Arc::new(store);
    for algorithm in Algorithm::ALL {
        let rule = by(algorithm, "in order", 1, HOUR);
        for round in 0..6 {
            let takes: Vec<_> = (0..50)
                .map(|key| take_of(&rule, &Key::from(format!("{round}-{key}").as_str()), 1))
                .collect();
            let charges = join_all(takes.iter().map(|take| charge(&store, take))).await;
            // Before the refund, the refund, and twice behind it.
            let mut answers: [Vec<_>; 3] = Default::default();
            let mut refunds = Vec::new();
            let mut step = |key: usize, step: usize| match step {
                1 => refunds.push(store.refund(&takes[key], &charges[key].receipt())),
                _ => answers[step.saturating_sub(1)].push(store.take(&takes[key])),
            };
            match round % 2 {
                0 => (0..200).for_each(|at| step(at / 4, at % 4)),
                _ => (0..200).for_each(|at| step(at % 50, at / 50)),
            }
            for units in join_all(refunds).await {
                assert_eq!(units.expect("an answer"), 1, "{algorithm:?}");
            }
            for (answers, is_allowed) in answers.into_iter().zip([false, true, false]) {
                for (key, answer) in join_all(answers).await.into_iter().enumerate() {
                    let answer = answer.expect("a decision");
                    let case = format!("{algorithm:?}, round {round}, key {key}: {answer:?}");
                    assert_eq!(answer.is_allowed(), is_allowed, "{case}");
                }
            }
            clock.set(clock.now() + 1_500);
        }
    }
}

/// Law 13: thousands of refunds of one key, in turns with takes of that key, split no calls of
/// other keys.
#[tokio::test]
async fn refunds_of_one_key_split_no_calls_of_others() {
    const REFUNDS: usize = 3_000;
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    let store: Arc<dyn Store> = Arc::new(connect(&proxy.url, PATIENT).await);
    let hot = take_of(
        &by(Algorithm::SlidingLog, "hot", 9_000, HOUR),
        &Key::default(),
        1,
    );
    let other = by(Algorithm::SlidingLog, "others", 9_000, HOUR);
    let receipt = charge(&store, &hot).await.receipt();
    run(&server, "CONFIG RESETSTAT");
    let (mut refunds, mut takes) = (Vec::new(), Vec::new());
    for at in 0..REFUNDS {
        let other = take_of(&other, &Key::from((at % 50).to_string().as_str()), 1);
        takes.push(store.take(&other));
        refunds.push(store.refund(&hot, &receipt));
        takes.push(store.take(&hot));
    }
    let (takes, refunds) = (join_all(takes).await, join_all(refunds).await);
    assert!(takes.iter().all(is_allowed));
    let units: u64 = refunds.into_iter().map(|units| units.expect("units")).sum();
    assert_eq!(units, 1);
    let stats = redis::cmd("INFO").arg("commandstats").to_owned();
    let stats: redis::InfoDict = stats.query(&mut server.connection()).expect("an answer");
    let calls: String = stats.get("cmdstat_evalsha").expect("it was called");
    let calls = calls.strip_prefix("calls=").and_then(|calls| {
        let (calls, _) = calls.split_once(',')?;
        calls.parse::<usize>().ok()
    });
    // Two for each refund of the hot key and the take behind it.
    let of_others = calls.expect("a number") - 2 * REFUNDS;
    assert!(of_others < 100, "{of_others} calls for {REFUNDS} takes");
}

/// More refunds of one key than a store remembers: none is given back twice.
#[tokio::test]
async fn more_refunds_than_are_remembered() {
    const MANY: u64 = 70_000;
    let clocked = &Stores::start().await.all[0];
    for algorithm in Algorithm::ALL {
        let rule = by(algorithm, "remembered", MANY, HOUR * 87_600);
        let take = take_of(&rule, &Key::default(), 1);
        let mut charges = Vec::new();
        for _ in 0..MANY {
            clocked.advance(Duration::from_micros(7));
            charges.push(clocked.charge(&take).await.receipt());
        }
        let mut back = [0; 3];
        for total in &mut back {
            for receipt in &charges {
                *total += clocked
                    .store
                    .refund(&take, receipt)
                    .await
                    .expect("an answer");
            }
        }
        assert!(back[0] >= 65_536, "{algorithm:?}: {back:?}");
        assert!(back.iter().sum::<u64>() <= MANY, "{algorithm:?}: {back:?}");
        assert_eq!(back[1..], [0, 0], "{algorithm:?}");
        let left = clocked.remaining(&take).await;
        assert!(left <= MANY, "{algorithm:?}: {left}");
    }
}

/// One of two stores does not answer: the other one's charge is given back all the same, the error
/// says so, and asking again gives back the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_stores_does_not_answer() {
    let server = Redis::start();
    let far: Arc<dyn Store> = Arc::new(connect(&server.url, millis(100)).await);
    let near: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let layer =
        |path, store: &Arc<dyn Store>| RateLimitLayer::new(path, HOUR, 5).store(Arc::clone(store));
    let app = Router::new().route("/", get(async || "1").layer(layer("inner", &near)));
    let app = app
        .layer(layer("middle", &far))
        .layer(layer("outer", &near));
    let response = send(&app).await;
    let charges = Charges::from_extensions(response.extensions());
    assert_eq!(charges.len(), 3);
    server.signal("STOP");
    charges.refund().await.expect_err("one does not answer");
    let look = |path| {
        take_of(
            &by(Algorithm::SlidingLog, path, 5, HOUR),
            &Key::default(),
            1,
        )
    };
    assert_eq!(remaining(&*near, &look("outer")).await, 5);
    assert_eq!(remaining(&*near, &look("inner")).await, 5);
    server.signal("CONT");
    let began = Instant::now();
    let back = loop {
        match charges.refund().await {
            Ok(back) => break back,
            Err(error) => assert!(began.elapsed() < PATIENT, "{error}"),
        }
        sleep(millis(5)).await;
    };
    assert!(back <= 1, "the near ones were given back before: {back}");
    let direct = connect(&server.url, PATIENT).await;
    assert_eq!(remaining(&direct, &look("middle")).await, 5);
    assert_eq!(charges.refund().await.expect("an answer"), 0);
}

/// A service that uses a request again, extensions and all, gives each charge back once.
#[tokio::test]
async fn a_request_that_is_sent_again() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let handler = service_fn(async |request: Request<Body>| {
        let charges = Charges::from_extensions(request.extensions());
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(Seen(Arc::new(charges)));
        Ok::<_, Infallible>(response)
    });
    let layer = RateLimitLayer::new("again", HOUR, 5).store(Arc::clone(&store));
    let service = layer.layer(handler);
    let look = take_of(
        &by(Algorithm::SlidingLog, "again", 5, HOUR),
        &Key::default(),
        1,
    );
    let first = service
        .clone()
        .oneshot(request())
        .await
        .expect("never fails");
    let mut again = request();
    let seen = first.extensions().get::<Seen>().expect("seen").0.clone();
    again.extensions_mut().insert(seen.clone());
    let second = service.oneshot(again).await.expect("never fails");
    let all = second.extensions().get::<Seen>().expect("seen").0.clone();
    assert_eq!(remaining(&*store, &look).await, 3);
    let back = all.refund().await.expect("an answer") + seen.refund().await.expect("an answer");
    assert_eq!(back, 2);
    assert_eq!(remaining(&*store, &look).await, 5);
}

#[derive(Debug, Clone)]
struct Seen(Arc<Charges>);

/// Law 1 under a mix of takes and refunds from many tasks: no window holds more than its max of
/// units that were not given back, by the store's own stamps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_holds_more_than_was_kept() {
    const MAX: u64 = 40;
    let window = millis(400);
    let server = Redis::start();
    let stores: [Arc<dyn Store>; 3] = [
        Arc::new(connect(&server.url, PATIENT).await),
        Arc::new(MemoryStore::new()),
        Resilient::new(connect(&server.url, PATIENT).await).build(),
    ];
    for (place, store) in stores.iter().enumerate() {
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", store.name());
            let rule = by(algorithm, &format!("mix{place}"), MAX, window);
            let tasks = (0..8_u64).map(|seed| {
                let (store, rule) = (Arc::clone(store), Arc::clone(&rule));
                tokio::spawn(async move {
                    let (mut random, mut mine) = (Random::new(seed + 1), Vec::new());
                    let began = Instant::now();
                    while began.elapsed() < window * 4 {
                        let take = take_of(&rule, &Key::default(), 1 + random.below(4));
                        let decision = store.take(&take).await.expect("a decision");
                        if let Some(receipt) = decision.receipt() {
                            mine.push((receipt, take, None));
                        }
                        for _ in 0..random.below(3) {
                            let recent = mine.len().min(6) as u64;
                            if recent == 0 {
                                continue;
                            }
                            let at = mine.len() - 1 - random.below(recent) as usize;
                            let (receipt, take, back) = &mut mine[at];
                            if back.is_none() {
                                let answer = store.refund(take, receipt).await;
                                *back = Some(answer.expect("an answer"));
                            }
                        }
                        sleep(millis(random.below(4))).await;
                    }
                    mine
                })
            });
            let mut kept = Vec::new();
            let mut returned = 0;
            for mine in join_all(tasks).await {
                for (receipt, _, back) in mine.expect("no panic") {
                    let back = back.unwrap_or(0);
                    assert!(back <= receipt.units(), "{case}: {back} of {receipt:?}");
                    kept.push((receipt.stamp(), receipt.units() - back));
                    returned += back;
                }
            }
            assert!(returned > 0, "{case}: nothing was given back");
            kept.sort_unstable();
            let micros = window.as_micros() as u64;
            // The others may hold their max twice in some windows.
            let most = match algorithm {
                Algorithm::SlidingLog | Algorithm::SlidingWindow => MAX,
                _ => 2 * MAX,
            };
            for (at, (first, _)) in kept.iter().enumerate() {
                let inside = kept[at..]
                    .iter()
                    .take_while(|(stamp, _)| stamp - first < micros);
                let sum: u64 = inside.map(|(_, units)| units).sum();
                assert!(sum <= most, "{case}: {sum} of {most} in a window");
            }
        }
    }
}

/// Clones of one charge ask at once, and most give up: the patient one gets its answer, and units
/// are given back once, or not at all if the one that asked first gave up before it was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_that_give_up() {
    let server = Redis::start();
    let proxy = behind(&server, millis(10)).await;
    let store: Arc<dyn Store> = Arc::new(connect(&proxy.url, PATIENT).await);
    for algorithm in Algorithm::ALL {
        let take = take_of(&by(algorithm, "clones", 8, HOUR), &Key::default(), 4);
        for round in 0..10 {
            let mine = charge(&store, &take).await;
            let other = charge(&store, &take).await;
            let asking = (0..20_u64).map(|at| {
                let mine = mine.clone();
                tokio::spawn(async move {
                    let patience = if at == round { PATIENT } else { millis(at) };
                    let answer = timeout(patience, mine.refund()).await;
                    assert!(at != round || answer.is_ok(), "the patient one");
                    answer.map_or(0, |answer| answer.expect("an answer"))
                })
            });
            let mut back = 0;
            for answer in join_all(asking).await {
                back += answer.expect("no panic");
            }
            assert!(back <= 4, "{algorithm:?}: {back}");
            let left = remaining(&*store, &take).await;
            assert_units(algorithm, left, if left == 0 { 0 } else { 4 });
            other.refund().await.expect("an answer");
            store.reset(&take).await.expect("an answer");
        }
    }
}

/// A store that is asked too much refuses a refund, and the charge is not given back any more.
#[tokio::test]
async fn a_refund_that_is_shed() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let shed: Arc<dyn Store> = Arc::new(Resilient::bare(Arc::clone(&memory)).in_flight(0));
    let take = take_of(
        &by(Algorithm::SlidingLog, "shed", 5, HOUR),
        &Key::default(),
        5,
    );
    let mine = charge(&memory, &take).await;
    let refused = Charge::new(shed, take.clone(), mine.receipt());
    let error = refused.refund().await.expect_err("nothing is asked");
    assert_eq!(error.kind(), StoreErrorKind::Overloaded);
    for _ in 0..3 {
        assert_eq!(refused.refund().await.expect("no question"), 0);
        assert_eq!(remaining(&*memory, &take).await, 0);
    }
    assert_eq!(mine.refund().await.expect("an answer"), 5);
    assert_eq!(remaining(&*memory, &take).await, 5);
}

/// A server without memory: a refund is done or is an error, and it is not done later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory() {
    let server = Redis::start();
    let store: Arc<dyn Store> = Arc::new(connect(&server.url, PATIENT).await);
    for algorithm in Algorithm::ALL {
        let take = take_of(&by(algorithm, "memory", 8, HOUR), &Key::default(), 4);
        let (mine, other) = (charge(&store, &take).await, charge(&store, &take).await);
        kit::run(&server, "CONFIG SET maxmemory 1");
        let first = mine.refund().await;
        println!("{algorithm:?}: {first:?}");
        assert_eq!(mine.refund().await.expect("no question"), 0);
        kit::run(&server, "CONFIG SET maxmemory 0");
        assert_eq!(mine.refund().await.expect("no question"), 0);
        let back = first.unwrap_or(0);
        assert!(remaining(&*store, &take).await >= back, "{algorithm:?}");
        let back = other.refund().await.expect("an answer");
        assert_units(algorithm, back, 4);
    }
}

/// Law 8: a log that is longer than a refund may rewrite gives back, or does not, in memory as in
/// Redis, and what was not given back is still charged.
#[tokio::test]
async fn refunds_of_a_long_log() {
    const MANY: usize = 5_000;
    let stores = Stores::start().await;
    let mut seen = Vec::new();
    for clocked in &stores.all[..2] {
        let rule = by(Algorithm::SlidingLog, "long", MANY as u64, HOUR);
        let take = take_of(&rule, &Key::default(), 1);
        let mut charges = Vec::new();
        for _ in 0..MANY {
            clocked.advance(millis(1));
            charges.push(clocked.charge(&take).await);
        }
        let mut answers = Vec::new();
        for at in [
            0, 1, 400, 902, 903, 904, 905, 906, 1_000, 4_999, 0, 903, 904, 905,
        ] {
            let back = charges[at].refund().await.expect("an answer");
            answers.push((at, back, clocked.remaining(&take).await));
        }
        let back: u64 = answers.iter().map(|(_, back, _)| back).sum();
        assert_eq!(clocked.remaining(&take).await, back, "{}", clocked.name);
        seen.push(answers);
    }
    assert_eq!(seen[0], seen[1], "memory and Redis");
}
