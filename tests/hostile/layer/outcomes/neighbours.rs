//! Refunds that travel together: what is wrong with one costs no other one anything (law 13).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kit::Redis;
use tidegate::store::{StoreErrorKind, StoreFuture};
use tidegate::{Limits, MemoryStore, RateLimitLayer, Store, StoreError};
use tokio::time::sleep;

use super::{
    ALGORITHMS, Gate, Wrapped, ask, counted, flushed, key, left_of, limits, of, send, until, wrap,
};
use kit::distant::{Distant, Fate};
use kit::stub::Stub;
use kit::{PATIENT, behind, connect, millis, run};

/// How a store treats the refunds of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treats {
    Never,
    Panics,
    PanicsLater,
    Fails,
}

fn picky(treats: Treats) -> Stub {
    Stub::in_memory().refund_fn(move |memory, take, receipt| {
        if take.rule().path() == "bad" {
            return match treats {
                Treats::Never => StoreFuture::boxed(std::future::pending()),
                Treats::Panics => panic!("a store of a test"),
                Treats::PanicsLater => StoreFuture::boxed(async {
                    sleep(millis(5)).await;
                    panic!("a store of a test")
                }),
                Treats::Fails => {
                    let error = StoreError::new(StoreErrorKind::Refused, "no");
                    StoreFuture::ready(Err(error))
                }
            };
        }
        let answer = memory.refund(take, receipt);
        StoreFuture::boxed(async move {
            sleep(millis(5)).await;
            answer.await
        })
    })
}

/// A store that does not answer about one rule, or panics: the others get theirs back at once.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_bad_to_one_rule() {
    for treats in [
        Treats::Never,
        Treats::Fails,
        Treats::PanicsLater,
        Treats::Panics,
    ] {
        let limits = Limits::new([of("good", 500, &["2xx"]), of("bad", 500, &["2xx"])]);
        let limits = limits.store(picky(treats));
        let (good, bad) = (wrap(&limits.layer("good")), wrap(&limits.layer("bad")));
        for _ in 0..100 {
            assert_eq!(send(&bad, 200).await, 200, "{treats:?}");
            assert_eq!(send(&good, 200).await, 200, "{treats:?}");
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(counted(&limits, "good"), (100, 100, 0), "{treats:?}");
        assert_eq!(left_of(&limits, "good", "x").await, 500, "{treats:?}");
        assert!(limits.flush(Duration::from_secs(15)).await, "{treats:?}");
        assert_eq!(counted(&limits, "bad"), (0, 0, 100), "{treats:?}");
    }
}

/// A layer of its own has a bound of its own, and so have limits, also where they share a store.
#[tokio::test(start_paused = true)]
async fn each_layer_of_its_own_has_a_bound() {
    let distant = Distant::new(MemoryStore::new());
    distant.refunds_are(Fate::Silence);
    let store: Arc<dyn Store> = Arc::new(distant);
    let layers: Vec<_> = (0..3)
        .map(|at| {
            let rule = of(&format!("l{at}"), 100_000, &["2xx"]);
            RateLimitLayer::from_rule(rule).store(Arc::clone(&store))
        })
        .collect();
    let limits = limits(of("limits", 100_000, &["2xx"]), Arc::clone(&store));
    let services: Vec<_> = layers.iter().map(wrap).collect();
    let last = wrap(&limits.layer("limits"));
    for _ in 0..4_100 {
        for service in services.iter().chain([&last]) {
            assert_eq!(send(service, 200).await, 200);
        }
    }
    let lost = |layer: &RateLimitLayer| layer.snapshot().expect("used").refunds_lost;
    let lost = layers.iter().map(lost).sum::<u64>() + counted(&limits, "limits").2;
    assert_eq!(lost, 4 * 4, "as many wait as the docs say");
}

/// Thirty of each path end at once, so that their refunds share calls.
async fn end_together(services: &[&Wrapped], meanwhile: impl AsyncFnOnce()) {
    let gate = Gate::new();
    let tasks: Vec<_> = services
        .iter()
        .flat_map(|service| (0..30).map(|_| (*service).clone()))
        .map(|service| {
            let request = gate.request();
            tokio::spawn(async move { ask(&service, request).await })
        })
        .collect();
    meanwhile().await;
    gate.open();
    for answer in join_all(tasks).await {
        assert_eq!(answer.expect("no panic"), 200);
    }
}

/// The ACL forbids one rule's key, a foreign value stands under it, the scripts are flushed: the
/// refunds of the other rule, in the same calls, arrive.
#[tokio::test]
async fn calls_that_are_shared() {
    let server = Redis::start();
    run(&server, "ACL SETUSER app on nopass ~* +@all");
    let proxy = behind(&server, millis(4)).await;
    let url = proxy.url.replace("//", "//app:x@");
    for algorithm in ALGORITHMS {
        for fault in ["acl", "type", "flush", "gone"] {
            let case = format!("{algorithm:?} {fault}");
            let store = connect(&url, PATIENT).await;
            let rules =
                ["good", "bad"].map(|path| of(path, 500, &["2xx"]).with_algorithm(algorithm));
            let limits = Limits::new(rules).store(store);
            let (good, bad) = (wrap(&limits.layer("good")), wrap(&limits.layer("bad")));
            end_together(&[&bad, &good], async || {
                until((470, 470), async || {
                    (
                        left_of(&limits, "good", "x").await,
                        left_of(&limits, "bad", "x").await,
                    )
                })
                .await;
                let mut connection = server.connection();
                let names = redis::cmd("KEYS").arg("*bad*").query(&mut connection);
                let names: Vec<String> = names.expect("keys");
                assert!(!names.is_empty(), "{case}");
                match fault {
                    "acl" => run(&server, "ACL SETUSER app resetkeys ~*good* ~*first*"),
                    "flush" => run(&server, "SCRIPT FLUSH"),
                    _ => names.iter().for_each(|name| {
                        run(&server, &format!("DEL {name}"));
                        if fault == "type" {
                            run(&server, &format!("SADD {name} foreign"));
                        }
                    }),
                }
            })
            .await;
            flushed(&limits).await;
            let (refunds, units, lost) = counted(&limits, "good");
            let is_bucket = algorithm == tidegate::Algorithm::Gcra;
            assert_eq!(lost, 0, "{case}");
            if !is_bucket {
                assert_eq!((refunds, units), (30, 30), "{case}");
            }
            let (_, units, lost) = counted(&limits, "bad");
            println!("{case}: {units} given back of the bad rule, {lost} lost");
            match fault {
                "acl" | "type" => assert_eq!((units, lost), (0, 30), "{case}"),
                "flush" if !is_bucket => assert_eq!((units, lost), (30, 0), "{case}"),
                "gone" => assert_eq!((units, lost), (0, 0), "{case}"),
                _ => {}
            }
            run(&server, "ACL SETUSER app ~*");
            run(&server, "FLUSHALL");
            assert_eq!(left_of(&limits, "good", "x").await, 500);
            limits.reset("good", key("x")).await.expect("an answer");
        }
    }
}

/// A store that says it gave back more than was charged: no counter runs over, and no caller is
/// told more units than it paid.
#[tokio::test]
async fn a_store_that_says_too_many() {
    let store = Stub::in_memory().refund_fn(|_, _, _| StoreFuture::ready(Ok(u64::MAX)));
    let limits = limits(of("a", 100, &["2xx"]), store);
    let service = wrap(&limits.layer("a"));
    let mut before = 0;
    for _ in 0..3 {
        assert_eq!(send(&service, 200).await, 200);
        flushed(&limits).await;
        let units = counted(&limits, "a").1;
        assert!(units >= before, "numbers only grow: {before}, then {units}");
        before = units;
    }
    let admitted = limits.check("a", key("x")).cost(2).await.expect("allowed");
    let charge = admitted.charge.expect("charged");
    assert!(charge.refund().await.expect("an answer") <= 2);
}
