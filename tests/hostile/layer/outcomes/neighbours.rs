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
        if take.name("").starts_with("bad") {
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
