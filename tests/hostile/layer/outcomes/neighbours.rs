//! Refunds that travel together: what is wrong with one costs no other one anything (law 13).

use super::*;

/// How a store treats the refunds of the rule `bad`.
#[derive(Debug, Clone, Copy)]
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

fn good_and_bad(store: impl Store) -> (Limits, [Wrapped; 2]) {
    let limits = Limits::new(["good", "bad"].map(|path| of(path, 500, &["2xx"])));
    let limits = limits.store(store);
    let services = ["good", "bad"].map(|path| wrap(&limits.layer(path)));
    (limits, services)
}

/// A store that does not answer about one rule, or panics: the others get theirs back at once.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_bad_to_one_rule() {
    use Treats::{Fails, Never, Panics, PanicsLater};
    for treats in [Never, Fails, PanicsLater, Panics] {
        let (limits, [good, bad]) = good_and_bad(picky(treats));
        for _ in 0..100 {
            assert_eq!(send(&bad, 200).await, 200, "{treats:?}");
            assert_eq!(send(&good, 200).await, 200, "{treats:?}");
        }
        sleep(SECOND).await;
        assert_eq!(counted(&limits, "good"), (100, 100, 0), "{treats:?}");
        assert_eq!(left(&limits, "good").await, 500, "{treats:?}");
        assert!(limits.flush(15 * SECOND).await, "{treats:?}");
        assert_eq!(counted(&limits, "bad"), (0, 0, 100), "{treats:?}");
    }
}

/// A layer of its own has a bound of its own, and so have limits, also where they share a store.
#[tokio::test(start_paused = true)]
async fn each_layer_of_its_own_has_a_bound() {
    let distant = Distant::new(MemoryStore::new());
    distant.refunds_are(Fate::Silence);
    let store: Arc<dyn Store> = Arc::new(distant);
    let layers = ["l0", "l1", "l2"].map(|path| {
        let layer = RateLimitLayer::from_rule(of(path, 100_000, &["2xx"]));
        layer.store(Arc::clone(&store))
    });
    let (limits, last) = world(of("limits", 100_000, &["2xx"]), Arc::clone(&store));
    for service in layers.iter().map(wrap).chain([last]) {
        pass(&service, 200, 4_100).await;
    }
    let lost = |layer: &RateLimitLayer| layer.snapshot().expect("used").refunds_lost;
    let lost = layers.iter().map(lost).sum::<u64>() + counted(&limits, "limits").2;
    assert_eq!(lost, 4 * 4, "as many wait as the docs say");
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
            // Thirty of each path end at once, so that their refunds share calls.
            let gate = Gate::new();
            let services = ["bad", "good"].map(|path| wrap(&limits.layer(path)));
            let tasks = services
                .iter()
                .flat_map(|it| (0..30).map(|_| gate.start(it)));
            let tasks: Vec<_> = tasks.collect();
            for path in ["good", "bad"] {
                until_left(&limits, path, 470).await;
            }
            let names = kit::keys(&server, "*bad*");
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
            gate.open();
            assert_eq!(done(tasks).await, [200; 60]);
            flushed(&limits).await;
            let (refunds, units, lost) = counted(&limits, "good");
            let is_bucket = algorithm == Algorithm::Gcra;
            assert_eq!(lost, 0, "{case}");
            assert!(is_bucket || (refunds, units) == (30, 30), "{case}: {units}");
            let (_, units, lost) = counted(&limits, "bad");
            match fault {
                "acl" | "type" => assert_eq!((units, lost), (0, 30), "{case}"),
                "flush" if !is_bucket => assert_eq!((units, lost), (30, 0), "{case}"),
                "gone" => assert_eq!((units, lost), (0, 0), "{case}"),
                _ => {}
            }
            run(&server, "ACL SETUSER app ~*");
            run(&server, "FLUSHALL");
            assert_eq!(left(&limits, "good").await, 500);
            reset(&limits, "good").await;
        }
    }
}

/// A store that says it gave back more than was charged: no counter runs over, and no caller is
/// told more units than it paid.
#[tokio::test]
async fn a_store_that_says_too_many() {
    let store = Stub::in_memory().refund_fn(|_, _, _| StoreFuture::ready(Ok(u64::MAX)));
    let (limits, service) = world(of("a", 100, &["2xx"]), store);
    let mut before = 0;
    for _ in 0..3 {
        pass(&service, 200, 1).await;
        flushed(&limits).await;
        let units = counted(&limits, "a").1;
        assert!(units >= before, "numbers only grow: {before}, then {units}");
        before = units;
    }
    let admitted = limits.check("a", key("x")).cost(2).await.expect("allowed");
    let charge = admitted.charge.expect("charged");
    assert!(charge.refund().await.expect("an answer") <= 2);
}
