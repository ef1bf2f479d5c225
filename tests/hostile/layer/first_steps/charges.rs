//! Charges behind every switch: the handler runs, finds what its layers charged, and gives back
//! exactly that, once.

use axum::extract::Request;
use axum::middleware::{Next, from_fn};

use super::*;

/// All of these charges go back: how many units.
async fn refund(charges: &Charges) -> u64 {
    charges.refund().await.expect("an answer")
}

async fn remaining(store: &impl Store, rule: &Rule) -> u64 {
    let take = Take::new(rule.clone().into(), Key::default());
    store.peek(&take).await.expect("a decision").remaining()
}

/// Rules at random: everything that an operator may turn.
fn turned(random: &mut Random) -> Rules {
    let mut rules = Rules::default();
    for path in ["outer", "middle", "inner"] {
        let mut one = per_hour(path, 1_000_000).with_cost(1 + random.below(3));
        match random.below(8) {
            0 => continue,
            1 => one = one.into_shadow(),
            2 => one = one.with_cost(0),
            3 => one = one.with_shadow(per_hour(path, 0)),
            4 => one = one.with_on_error(OnError::Proceed),
            _ => {}
        }
        rules.insert(one);
        if random.below(6) == 0 {
            rules.disable(path);
        }
    }
    let is_enabled = random.below(8) != 0;
    rules.enabled(is_enabled)
}

/// An operator turns every switch while requests run, also between two layers of one request. No
/// handler is down, and what each gives back is what its layers charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switches_turn_while_requests_run() {
    let server = Server::start();
    let store = connected(&server.url).await.timeout(PATIENT);
    let limits = Limits::new(turned(&mut Random::new(1))).store(store.clone());
    let handler = async |charges: Charges, same: Charges| {
        assert_eq!(charges.len(), same.len());
        let charged: u64 = charges.iter().map(|one| one.receipt().units()).sum();
        let middle = refund(&charges.of("middle")).await;
        let all = [&charges, &same, &charges.of("x")];
        let back: u64 = join_all(all.map(refund)).await.into_iter().sum();
        assert_eq!(middle + back, charged, "law 15");
        assert_eq!(refund(&charges).await, 0);
        charges.len().to_string()
    };
    let exempt = |head: &http::request::Parts| head.uri.query().is_some();
    let meddles = {
        let (rules, random) = (limits.rules().clone(), Arc::new(Mutex::new(Random::new(2))));
        from_fn(move |request: Request, next: Next| {
            let mut random = random.lock().expect("no panic");
            if random.below(4) == 0 {
                rules.replace(turned(&mut random));
            }
            drop(random);
            next.run(request)
        })
    };
    let inner = get(handler).layer(limits.layer("inner").exempt(exempt));
    let app = Router::new()
        .route("/", inner)
        .layer(meddles.clone())
        .layer(limits.layer("middle"))
        .layer(meddles)
        .layer(limits.layer("outer").exempt(exempt))
        .layer(limits.layer("no rule"));
    let (charged, empty) = (AtomicU64::new(0), AtomicU64::new(0));
    let clients = (0..8).map(async |client| {
        for at in 0..150 {
            let uri = ["/", "/?exempt"][usize::from((client + at) % 7 == 0)];
            let response = send(&app, uri).await;
            assert_eq!(response.status(), StatusCode::OK, "law 16");
            let outside = Charges::from_extensions(response.extensions());
            assert_eq!(refund(&outside).await, 0, "it was given back inside");
            let count: u64 = text(response).await.parse().expect("a number");
            assert_eq!(outside.len() as u64, count);
            let of = if count == 0 { &empty } else { &charged };
            of.fetch_add(1, Ordering::Relaxed);
        }
    });
    join_all(clients).await;
    assert!(charged.into_inner() > 100 && empty.into_inner() > 20);
    for path in ["outer", "middle", "inner"] {
        let rule = per_hour(path, 1_000_000);
        // Shadows keep what they count.
        remaining(&store, &rule.clone().into_shadow()).await;
        assert_eq!(remaining(&store, &rule).await, 1_000_000, "{path}");
    }
}

/// Where an error lets the request through, in every way, the handler finds charges that are empty.
#[tokio::test]
async fn requests_that_pass_without_a_decision() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let store = connected(&proxy.url).await;
    proxy.all(Mode::BlackHole);
    let proceed = || per_hour("p", 5).with_on_error(OnError::Proceed);
    let layer = |rule| RateLimitLayer::from_rule(rule).store(store.clone());
    let no_key = per_hour("p", 5)
        .with_key(|_: &http::request::Parts| Err(tidegate::key::KeyError::server("none")));
    let layers = [
        layer(proceed()),
        layer(proceed()).wait(Duration::MAX),
        layer(per_hour("p", 5)).on_error(FailOpen),
        layer(per_hour("p", 5)).on_error(AlsoWithFallback(FailOpen)),
        layer(per_hour("p", 5).into_shadow()),
        layer(no_key.into_shadow()),
        layer(proceed()).cost(|_| 0),
        layer(proceed()).exempt(|_| true),
        layer(proceed()).cost(|_| u64::MAX),
    ];
    for (at, layer) in layers.into_iter().enumerate() {
        for twice in [false, true] {
            let handler = async |charges: Charges, same: Charges| {
                assert_eq!(refund(&same).await, 0);
                assert_eq!(refund(&charges.of("p")).await, 0);
                charges.len().to_string()
            };
            let mut app = Router::new().route("/", get(handler).layer(layer.clone()));
            if twice {
                app = app.layer(layer.clone());
            }
            let response = send(&app, "/").await;
            assert_eq!(response.status(), StatusCode::OK, "layer {at}");
            assert_eq!(text(response).await, "0", "layer {at}");
        }
    }
}

/// Code outside of the layers finds charges on the response where something was charged.
#[tokio::test]
async fn charges_on_the_response() {
    let layers = [
        RateLimitLayer::from_rule(per_hour("p", 5)),
        RateLimitLayer::from_rule(per_hour("p", 5)).exempt(|_| true),
        RateLimitLayer::from_rule(per_hour("p", 5)).cost(|_| 0),
        RateLimitLayer::from_rule(per_hour("p", 5).into_shadow()),
        Limits::new(Rules::default()).layer("p"),
    ];
    let found = layers.map(async |layer| {
        let app = Router::new().route("/", get(async || "1").layer(layer));
        let response = send(&app, "/").await;
        Charges::from_extensions(response.extensions()).len()
    });
    let found = join_all(found).await;
    assert_eq!(found, [1, 0, 1, 0, 0]);
}

/// The fallback charges while Redis hangs. What it charged is given back to it, and nothing of
/// Redis's counts is.
#[tokio::test]
async fn what_a_fallback_charged_goes_back_there() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let store = connected(&proxy.url).await;
    let store = store.timeout(millis(150)).processes(1).denial_cache(None);
    let refunds = Arc::new(AtomicBool::new(false));
    let gives = Arc::clone(&refunds);
    let handler = get(async move |charges: Charges| {
        if gives.load(Ordering::Relaxed) {
            assert_eq!(refund(&charges).await, charges.len() as u64);
            assert_eq!(refund(&charges).await, 0);
        }
        charges.len().to_string()
    });
    let layer = |path, max| RateLimitLayer::from_rule(per_hour(path, max)).store(store.clone());
    let app = Router::new()
        .route("/", handler.layer(layer("inner", 4)))
        .layer(layer("outer", 100));
    let source = |response: &Response| {
        let decision = Decision::from_extensions(response.extensions());
        decision.map(Decision::source)
    };
    let is_so = async || source(&send(&app, "/").await) == Some(Source::Redis);
    eventually("Redis decides", is_so).await;
    let inner = Take::new(per_hour("inner", 4).into(), Key::default());
    let before = remaining(&store, inner.rule()).await;
    proxy.all(Mode::Hold);
    refunds.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        let response = send(&app, "/").await;
        assert_eq!(response.status(), StatusCode::OK, "all came back");
        assert_eq!(source(&response), Some(Source::Fallback));
        assert_eq!(text(response).await, "2");
    }
    refunds.store(false, Ordering::Relaxed);
    for at in 0..6 {
        let status = send(&app, "/").await.status();
        assert_eq!(status == StatusCode::OK, at < 4, "{at}: {status}");
    }
    proxy.all(Mode::Pass);
    eventually("Redis decides", async || {
        let state = store.peek(&inner).await.expect("a decision");
        state.source() == Source::Redis
    })
    .await;
    // What arrives late is refused: Redis has neither charged nor given back.
    assert_eq!(remaining(&store, inner.rule()).await, before);
}

/// The reply is lost: Redis has charged, and nobody knows. Nothing is given back, and no unit of
/// somebody else's.
#[tokio::test]
async fn a_charge_whose_reply_was_lost() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let store = connected(&proxy.url).await;
    let store = store.timeout(millis(300)).failures(None);
    let handler = get(async |charges: Charges| {
        let back = refund(&charges).await;
        format!("{} {back}", charges.len())
    });
    let limit = per_hour("p", 10).with_on_error(OnError::Proceed);
    let take = Take::new(limit.clone().into(), Key::default());
    let layer = RateLimitLayer::from_rule(limit).store(store.clone());
    let app = Router::new()
        .route("/", handler.layer(layer.clone()))
        .layer(layer);
    assert_eq!(text(send(&app, "/").await).await, "2 2");
    let other = store.take(&take).await.expect("a decision");
    assert!(other.is_allowed());
    // It answers, and its answers are lost.
    proxy.all(Mode::LoseReplies(usize::MAX));
    assert_eq!(text(send(&app, "/").await).await, "0 0");
    proxy.all(Mode::Pass);
    let left = async || store.peek(&take).await.map(|state| state.remaining()).ok();
    eventually("Redis decides", async || left().await.is_some()).await;
    let left = left().await.expect("a decision");
    assert!((7..=9).contains(&left), "{left}");
    let receipt = other.receipt().expect("it was charged");
    assert_eq!(store.refund(&take, &receipt).await.expect("an answer"), 1);
}

/// The inner layer denies, or fails: what the outer ones charged is on the response, and goes back
/// once, whoever asks.
#[tokio::test]
async fn the_outer_charges_of_a_denied_request() {
    let server = Server::start();
    let store = connected(&server.url).await.timeout(PATIENT);
    let of = |rule: &Rule| RateLimitLayer::from_rule(rule.clone()).store(store.clone());
    let outer = per_hour("outer", 10).with_cost(3);
    let no_key = per_hour("x", 1)
        .with_key(|_: &http::request::Parts| Err(tidegate::key::KeyError::absent("none")));
    for (inner, status) in [
        (per_hour("denies", 0), StatusCode::TOO_MANY_REQUESTS),
        (no_key, StatusCode::BAD_REQUEST),
    ] {
        let app = Router::new()
            .route("/", get(async || "1").layer(of(&inner)))
            .layer(of(&outer));
        let responses = join_all((0..3).map(|_| send(&app, "/"))).await;
        for response in responses {
            assert_eq!(response.status(), status);
            let charges = Charges::from_extensions(response.extensions());
            assert_eq!(charges.len(), 1);
            let asked = (0..20).map(|_| charges.refund());
            let back: u64 = join_all(asked).await.into_iter().flatten().sum();
            assert_eq!(back, 3);
        }
        assert_eq!(remaining(&store, &outer).await, 10);
    }
}

/// Requests that waited, and requests that were aborted while they waited, are charged once or not
/// at all.
#[tokio::test]
async fn requests_that_wait_are_charged_once() {
    let server = Server::start();
    let store = connected(&server.url).await.timeout(PATIENT);
    let slow = owned_rule("slow", 2, Duration::from_secs(1));
    let large = per_hour("large", 1_000);
    let of = |rule: &Rule| RateLimitLayer::from_rule(rule.clone()).store(store.clone());
    let handler = get(async |charges: Charges| {
        assert_eq!(charges.len(), 2);
        assert_eq!(charges.of("slow").len(), 1);
        assert_eq!(refund(&charges.of("large")).await, 1);
    });
    let app = Router::new()
        .route("/", handler.layer(of(&slow).wait(HOUR)))
        .layer(of(&large));
    let waits = (0..8).map(|_| send(&app, "/"));
    let aborted = [(); 8].map(|()| {
        let app = app.clone();
        tokio::spawn(async move { send(&app, "/").await })
    });
    sleep(millis(50)).await;
    aborted.iter().for_each(tokio::task::JoinHandle::abort);
    for response in join_all(waits).await {
        assert_eq!(response.status(), StatusCode::OK);
    }
    let left = remaining(&store, &large).await;
    // Who left has paid outside, as the docs say, and nobody else has.
    assert!((992..=1_000).contains(&left), "{left}");
    let memory = MemoryStore::new();
    assert!(memory.is_empty());
}
