//! Layers in a row over a store that hangs, or says nonsense of itself, and the fields that they show
//! together.

use tidegate::store::Capabilities;

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

/// An app behind two such layers, `inner` and `outer`, which proceed.
fn two_layers(store: &(impl Store + Clone)) -> Router {
    let layer = |path| layer(path, OnError::Proceed, store);
    behind_layers([layer("inner"), layer("outer")])
}

/// An app behind these layers, from the inside out.
fn behind_layers(layers: impl IntoIterator<Item = RateLimitLayer>) -> Router {
    let app = Router::new().route("/", get(async || "1"));
    layers.into_iter().fold(app, Router::layer)
}

/// The status of a request, and how long it took.
async fn timed(app: &Router) -> (StatusCode, Duration) {
    let began = Instant::now();
    (send(app, "/").await.status(), began.elapsed())
}

/// Over a proxy, bounded by this time-out, with what the rest of a service has, but no breaker.
async fn resilient(proxy: &Proxy, time_out: Duration) -> Resilient<RedisStore> {
    let store = shop(&proxy.url);
    // The first connection may take longer than a decision.
    let store = store.connect().await.expect("a running server");
    store.timeout(time_out).failures(None).denial_cache(None)
}

/// A request whose first layer pays waits in a later one, until Redis is there again: then Redis
/// decides, and not the fallback for ever.
#[tokio::test]
async fn who_waits_asks_redis_again() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let store = resilient(&proxy, millis(100)).await.processes(1);
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
fn own(name: &'static str, take: fn(&dyn Store, &Take) -> StoreFuture<Decision>) -> Stub {
    Stub::in_memory().named(name).recording().take_fn(take)
}

/// The same, and says this of its time-out.
fn answering_within(own: Stub, time_out: fn() -> Option<Duration>) -> Stub {
    own.capabilities_fn(move |_| {
        let mut capabilities = Capabilities::default();
        capabilities.timeout = time_out();
        capabilities
    })
}

fn hangs(_: &dyn Store, _: &Take) -> StoreFuture<Decision> {
    StoreFuture::boxed(std::future::pending())
}

fn is_away(_: &dyn Store, _: &Take) -> StoreFuture<Decision> {
    let error = StoreError::new(StoreErrorKind::Unavailable, "is away");
    StoreFuture::ready(Err(error))
}

fn decides(inner: &dyn Store, take: &Take) -> StoreFuture<Decision> {
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
    let nonsense: [fn() -> Option<Duration>; 4] = [
        || Some(Duration::ZERO),
        || Some(Duration::MAX),
        || Some(Duration::from_secs(u64::MAX / 2)),
        || None,
    ];
    for (at, answers_within) in nonsense.into_iter().enumerate() {
        for take in [is_away, is_slowly_away] {
            let own = answering_within(own("away", take), answers_within);
            let app = two_layers(&own);
            for _ in 0..3 {
                assert_eq!(send(&app, "/").await.status(), StatusCode::OK, "{at}");
            }
            // Each request asks anew.
            assert!(own.takes().len() >= 3, "{at}");
        }
    }
}

fn is_slowly_away(_: &dyn Store, _: &Take) -> StoreFuture<Decision> {
    StoreFuture::boxed(async {
        sleep(millis(5)).await;
        Err(StoreError::new(StoreErrorKind::Timeout, "is late"))
    })
}

/// A store that panics when it is asked for its time-out: nobody else pays for it.
#[tokio::test]
async fn a_store_that_panics_about_its_time_out() {
    let own = own("panics", |inner, take| match take.rule().path() {
        "outer" => is_away(inner, take),
        _ => inner.take(take),
    });
    let store = answering_within(own, || panic!("on purpose"));
    let app = two_layers(&store);
    let aside = behind_layers([layer("aside", OnError::Proceed, &store)]);
    for _ in 0..3 {
        let app = app.clone();
        // Like a panic of `Store::take`, it may be the request's.
        let answer = tokio::spawn(async move { send(&app, "/").await.status() }).await;
        assert!(answer.is_err() || answer.is_ok_and(|status| status == 200 || status == 500));
        let response = send(&aside, "/").await;
        assert_eq!(response.status(), StatusCode::OK);
        let decision = Decision::from_extensions(response.extensions());
        assert!(decision.is_some(), "it is decided");
    }
}

/// A candidate that is tried beside the rule hangs: nobody pays for it, and it keeps no later layer
/// from asking.
#[tokio::test]
async fn a_candidate_that_hangs() {
    fn take(inner: &dyn Store, take: &Take) -> StoreFuture<Decision> {
        match take.rule().is_shadow() {
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
        let candidate = with_policy(path, OnError::Respond);
        let rule = with_policy(path, OnError::Respond).with_shadow(candidate);
        RateLimitLayer::from_rule(rule).store(Arc::clone(&store))
    };
    let (status, took) = timed(&behind_layers(["inner", "outer"].map(layer))).await;
    assert_eq!(status, StatusCode::OK);
    assert!(took < LONG - millis(50), "{took:?}");
    assert_eq!(own.takes().len(), 4, "both layers asked both");
}

/// A handler that answers with fields of its own, broken or hostile, of any generation.
#[tokio::test]
async fn fields_that_the_handler_sends() {
    let huge = "9".repeat(30_000);
    let values: [&[u8]; 8] = [
        b"",
        b"\xff\xfe",
        b"-1",
        b"99999999999999999999999999",
        b"limit=5, remaining=, reset=7",
        b"limit=5, remaining=18446744073709551616, reset=1",
        b"\"x\";r=1;t=2",
        huge.as_bytes(),
    ];
    const NAMES: &str = "ratelimit ratelimit-policy x-ratelimit-limit x-ratelimit-remaining \
        x-ratelimit-reset retry-after";
    for value in values {
        for lines in [1, 3] {
            let value = http::HeaderValue::from_bytes(value).expect("a value");
            let handler = get(move || {
                let mut response = Response::new(Body::empty());
                for name in words(NAMES) {
                    for _ in 0..lines {
                        response.headers_mut().append(name, value.clone());
                    }
                }
                std::future::ready(response)
            });
            for (outer, inner) in pairs_of_headers() {
                let layer = |path, headers| RateLimitLayer::new(path, HOUR, 100).headers(headers);
                let app = Router::new()
                    .route("/", handler.clone().layer(layer("inner", inner)))
                    .layer(layer("outer", outer));
                let response = send(&app, "/").await;
                assert_eq!(response.status(), StatusCode::OK);
                assert!(response.headers().contains_key("retry-after"));
            }
        }
    }
}

/// The inner layer denies: the client learns when to come back, whatever the outer layers show.
#[tokio::test]
async fn a_denial_keeps_its_retry_after() {
    for (outer, inner) in pairs_of_headers() {
        let small = RateLimitLayer::new("inner", Duration::from_secs(7), 1).headers(inner);
        let large = RateLimitLayer::new("outer", HOUR, 100).headers(outer);
        let app = behind_layers([small, large.on_error(FailOpen)]);
        send(&app, "/").await;
        let response = send(&app, "/").await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        let again: Vec<_> = response.headers().get_all("retry-after").iter().collect();
        assert_eq!(again, ["7"], "{:?}", response.headers());
    }
}

/// What two layers show, in all ways.
fn pairs_of_headers() -> impl Iterator<Item = (Headers, Headers)> {
    let all = [
        Headers::Draft11,
        Headers::Draft7,
        Headers::Legacy,
        Headers::None,
    ];
    all.into_iter()
        .flat_map(move |outer| all.map(|inner| (outer, inner)))
}
