//! Layers in a row over a store that hangs, or says nonsense of itself.

use tidegate::store::{Ask, Capabilities};

use super::*;

/// Long, so that two of them differ from one on a busy machine.
const LONG: Duration = millis(1_500);

fn with_policy(path: &str, on_error: OnError) -> Rule {
    per_hour(path, 1_000).with_on_error(on_error)
}

/// A layer of such a rule over this store.
fn layer(path: &str, on_error: OnError, store: &(impl Store + Clone)) -> RateLimitLayer {
    RateLimitLayer::from_rule(with_policy(path, on_error)).store(store.clone())
}

/// An app behind these layers, from the inside out.
fn behind_layers(layers: impl IntoIterator<Item = RateLimitLayer>) -> Router {
    let app = Router::new().route("/", get(async || "1"));
    layers.into_iter().fold(app, Router::layer)
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

/// A store of one's own, over another one, that does what a test wants. It remembers its takes.
fn own(name: &'static str, take: fn(&dyn Store, &Ask) -> StoreFuture<Decision>) -> Stub {
    Stub::in_memory().named(name).recording().take_fn(take)
}

fn hangs(_: &dyn Store, _: &Ask) -> StoreFuture<Decision> {
    StoreFuture::boxed(std::future::pending())
}

fn is_away(_: &dyn Store, _: &Ask) -> StoreFuture<Decision> {
    let error = StoreError::new(StoreErrorKind::Unavailable, "is away");
    StoreFuture::ready(Err(error))
}

fn decides(inner: &dyn Store, take: &Ask) -> StoreFuture<Decision> {
    inner.take(take)
}

/// A store's name is for people: another store of the same name is not the one that hangs, and has
/// to be asked.
#[tokio::test]
async fn another_store_of_the_same_name() {
    let fine = own("mine", decides);
    let sick = Resilient::bare(own("mine", hangs)).timeout(LONG);
    let inner = layer("inner", OnError::Respond, &fine);
    let app = behind_layers([inner, layer("outer", OnError::Proceed, &sick)]);
    let response = send(&app, "/").await;
    assert_eq!(fine.takes().len(), 1, "it is not asked");
    assert_eq!(response.status(), StatusCode::OK);
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
            let own = own("away", take).capabilities_fn(move |_| {
                let mut capabilities = Capabilities::default();
                capabilities.timeout = timeout;
                capabilities
            });
            let app = ["inner", "outer"].map(|path| layer(path, OnError::Proceed, &own));
            let app = behind_layers(app);
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

/// A rule that is tried beside another one hangs: nobody pays for it, and it keeps no later layer
/// from asking.
#[tokio::test]
async fn a_shadow_rule_that_hangs() {
    fn take(inner: &dyn Store, take: &Ask) -> StoreFuture<Decision> {
        match take.name("").contains("~shadow") {
            true => StoreFuture::boxed(std::future::pending()),
            false => inner.take(take),
        }
    }
    let own = own("mine", take);
    let store = Resilient::new(own.clone())
        .timeout(LONG)
        .failures(2)
        .build();
    let layer = |path| {
        let rule = with_policy(path, OnError::Respond);
        RateLimitLayer::from_rule(match path.ends_with("next") {
            true => rule.into_shadow(),
            false => rule,
        })
        .store(Arc::clone(&store))
    };
    let app = behind_layers(["inner", "inner-next", "outer", "outer-next"].map(layer));
    let began = Instant::now();
    assert_eq!(send(&app, "/").await.status(), StatusCode::OK);
    let took = began.elapsed();
    assert!(took < LONG - millis(50), "{took:?}");
    assert_eq!(own.takes().len(), 4, "all layers asked");
}
