//! Layers in a row over a store that hangs, or says nonsense of itself.

use tidegate::store::{Ask, Capabilities};

use super::*;

/// A layer of such a rule over this store.
fn layer(path: &str, on_error: OnError, store: &(impl Store + Clone)) -> RateLimitLayer {
    let rule = per_hour(path, 1_000).with_on_error(on_error);
    RateLimitLayer::from_rule(rule).store(store.clone())
}

/// A request whose first layer pays waits in a later one, until Redis is there again: then Redis
/// decides, and not the fallback for ever.
#[tokio::test]
async fn who_waits_asks_redis_again() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let store = connected(&proxy.url).await.timeout(millis(100));
    let store = store.failures(None).denial_cache(None).processes(1);
    let small = owned_rule("small", 1, Duration::from_secs(2));
    let inner = RateLimitLayer::from_rule(small).store(store.clone());
    let inner = inner.wait(Duration::from_secs(20));
    let outer = layer("outer", OnError::Fallback, &store);
    let handler = get(async |decision: Option<Decision>| {
        format!("{:?}", decision.expect("decided").source())
    });
    let app = Router::new().route("/", handler.layer(inner)).layer(outer);
    proxy.all(Mode::Hold);
    let waits = app.clone();
    assert_eq!(text(send(&app, "/").await).await, "Fallback");
    let waits = tokio::spawn(async move { text(send(&waits, "/").await).await });
    // It is denied by the fallback, and asks again within two seconds.
    sleep(millis(500)).await;
    assert!(!waits.is_finished());
    proxy.all(Mode::Pass);
    let began = Instant::now();
    let body = waits.await.expect("no panic");
    assert_eq!(body, "Redis");
    assert!(began.elapsed() < Duration::from_secs(10));
}

fn is_away(_: &dyn Store, _: &Ask) -> StoreFuture<Decision> {
    let error = StoreError::new(StoreErrorKind::Unavailable, "is away");
    StoreFuture::ready(Err(error))
}

/// Stores that say nonsense about their time-out: an answer comes nevertheless, and at once.
#[tokio::test]
async fn time_outs_that_make_no_sense() {
    for timeout in [
        Some(Duration::ZERO),
        Some(Duration::MAX),
        Some(Duration::from_secs(u64::MAX / 2)),
        None,
    ] {
        for take in [is_away, is_slowly_away] {
            let own = Stub::in_memory().named("away").recording().take_fn(take);
            let own = own.capabilities_fn(move |_| {
                let mut capabilities = Capabilities::default();
                capabilities.timeout = timeout;
                capabilities
            });
            let [inner, outer] = ["inner", "outer"].map(|path| layer(path, OnError::Proceed, &own));
            let app = kit::app(inner).layer(outer);
            for _ in 0..3 {
                assert_eq!(send(&app, "/").await.status(), 200, "{timeout:?}");
            }
            // Each request asks anew.
            assert!(own.takes().len() >= 3, "{timeout:?}");
        }
    }
}

fn is_slowly_away(_: &dyn Store, _: &Ask) -> StoreFuture<Decision> {
    StoreFuture::boxed(async {
        sleep(millis(5)).await;
        Err(StoreError::new(StoreErrorKind::Timeout, "is late"))
    })
}
