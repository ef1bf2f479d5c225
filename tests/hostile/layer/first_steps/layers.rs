//! Three layers in a row over a Redis that hangs: a request pays once, wherever the hang begins,
//! and what it pays costs nobody else a decision.

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
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

/// A store over a proxy that remembers its takes.
async fn listening(proxy: &Proxy) -> Stub {
    let redis = RedisStore::connect(&*proxy.url).await.expect("a server");
    Stub::listening(redis).capabilities_fn(|redis| redis.capabilities())
}

/// What decided for each layer, from the outside in; `None` where nothing did.
type Sources = Arc<std::sync::Mutex<Vec<Option<Source>>>>;

/// How many layers had charged a request when it was noted before.
#[derive(Clone, Default)]
struct Before(usize);

/// Notes what the layer outside of it has decided.
fn note(app: Router, sources: &Sources) -> Router {
    let sources = Arc::clone(sources);
    app.layer(from_fn(move |mut request: Request, next: Next| {
        // Each layer that decides charges one unit.
        let charges = Charges::from_extensions(request.extensions()).len();
        let Before(before) = request
            .extensions_mut()
            .insert(Before(charges))
            .unwrap_or_default();
        let decision = Decision::from_extensions(request.extensions());
        let decision = decision.filter(|_| charges > before);
        let mut all = sources.lock().expect("no panic");
        all.push(decision.map(|decision| decision.source()));
        drop(all);
        next.run(request)
    }))
}

/// The hang begins before the first, the second or the third layer, under each policy of each layer.
#[tokio::test]
async fn a_hang_is_paid_once_wherever_it_begins() {
    let server = Server::start();
    let proxy = Arc::new(Proxy::start(&server.url).await);
    let store = resilient(&proxy, LONG).await;
    // Clones with other wrappers around the same store.
    let stores = [
        store.clone().processes(1),
        store.clone(),
        store.clone().processes(2).in_flight(None),
    ];
    let mut random = Random::new(5);
    for round in 0..12 {
        let begins = round % 3;
        let (sources, ran) = (Sources::default(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&ran);
        let handler = get(async move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let mut app = Router::new().route("/", handler);
        let mut policies = Vec::new();
        for (at, store) in stores.iter().enumerate().rev() {
            let policy = [OnError::Proceed, OnError::Fallback][random.below(2) as usize];
            app = note(app, &sources);
            app = app.layer(layer(&format!("p{at}"), policy, store));
            if at == begins {
                let proxy = Arc::clone(&proxy);
                app = app.layer(from_fn(move |request: Request, next: Next| {
                    proxy.all(Mode::Hold);
                    next.run(request)
                }));
            }
            policies.insert(0, policy);
        }
        let (status, took) = timed(&app).await;
        proxy.all(Mode::Pass);
        let case = format!("round {round}: from {begins}, {policies:?}, {took:?}");
        assert!(took < LONG * 2 - millis(50), "{case}");
        let sources = sources.lock().expect("no panic").clone();
        for (at, policy) in policies.iter().enumerate() {
            let expected = match policy {
                _ if at < begins => Some(Source::Redis),
                // The one in the middle has no fallback, so the request ends there.
                OnError::Fallback if at == 1 => {
                    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{case}");
                    break;
                }
                OnError::Fallback => Some(Source::Fallback),
                _ => None,
            };
            assert_eq!(sources[at], expected, "{case}: {sources:?}");
        }
        eventually("Redis decides again", async || {
            let take = Take::new(with_policy("again", OnError::Respond).into(), "".into());
            stores[1].take(&take).await.is_ok()
        })
        .await;
    }
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

/// What others do between two layers takes longer than the time-out: Redis is there again, so the
/// later layer asks it; also where there is a longer time-out around the store's own, which is the
/// one that counts.
#[tokio::test]
async fn time_between_the_layers() {
    let server = Server::start();
    let proxy = Arc::new(Proxy::start(&server.url).await);
    let store = resilient(&proxy, millis(100)).await.processes(1);
    the_later_layer_asks(Arc::clone(&proxy), store).await;
    let store = RedisStore::connect(&*proxy.url).await.expect("a server");
    let store = Resilient::new(store.timeout(millis(100))).timeout(HOUR);
    the_later_layer_asks(proxy, store.processes(1)).await;
}

async fn the_later_layer_asks(proxy: Arc<Proxy>, store: Resilient<RedisStore>) {
    let sources = Sources::default();
    let app = note(behind_layers([]), &sources);
    let app = app.layer(layer("inner", OnError::Respond, &store));
    let between = Arc::clone(&proxy);
    let app = app.layer(from_fn(move |request: Request, next: Next| {
        let proxy = Arc::clone(&between);
        async move {
            proxy.all(Mode::Pass);
            sleep(Duration::from_secs(2)).await;
            next.run(request).await
        }
    }));
    let app = note(app, &sources).layer(layer("outer", OnError::Fallback, &store));
    proxy.all(Mode::Hold);
    assert_eq!(send(&app, "/").await.status(), StatusCode::OK);
    let sources = sources.lock().expect("no panic").clone();
    assert_eq!(sources, [Some(Source::Fallback), Some(Source::Redis)]);
}

/// Two servers, of which one hangs: the other one decides, before and behind it.
#[tokio::test]
async fn two_servers_of_which_one_hangs() {
    let servers = [Server::start(), Server::start()];
    let (ill, well) = (
        Proxy::start(&servers[0].url).await,
        Proxy::start(&servers[1].url).await,
    );
    let (sick, fine) = (resilient(&ill, LONG).await, resilient(&well, LONG).await);
    let sources = Sources::default();
    let mut app = behind_layers([]);
    for at in (0..5).rev() {
        let store = if at % 2 == 0 { &fine } else { &sick };
        app = note(app, &sources);
        app = app.layer(layer(&format!("p{at}"), OnError::Proceed, store));
    }
    ill.all(Mode::BlackHole);
    for _ in 0..3 {
        let (status, took) = timed(&app).await;
        assert_eq!(status, StatusCode::OK);
        assert!(took < LONG * 2 - millis(50), "{took:?}");
        let redis = Some(Source::Redis);
        let sources = std::mem::take(&mut *sources.lock().expect("no panic"));
        assert_eq!(sources, [redis, None, redis, None, redis]);
    }
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

/// The breaker counts a request once, whatever its layers try beside their rules.
#[tokio::test]
async fn the_breaker_counts_a_request_once() {
    for with_candidates in [false, true] {
        let server = Server::start();
        let proxy = Proxy::start(&server.url).await;
        let asked = listening(&proxy).await;
        // No probe closes it meanwhile.
        let store = Resilient::new(asked.clone()).timeout(millis(150));
        let store = store.failures(3).probe_every(HOUR);
        let layer = |path| {
            let mut limit = with_policy(path, OnError::Proceed);
            if with_candidates {
                limit = limit.with_shadow(with_policy(path, OnError::Proceed));
            }
            RateLimitLayer::from_rule(limit).store(store.clone())
        };
        let app = behind_layers(["inner", "middle", "outer"].map(layer));
        assert_eq!(send(&app, "/").await.status(), StatusCode::OK);
        let stalls = Stalls::watch(&[&server.url], millis(80)).await;
        proxy.all(Mode::BlackHole);
        let questions = || asked.asked(|take| !take.only_looks() && !take.rule().is_shadow());
        for request in 0..5 {
            let before = questions();
            let (status, took) = timed(&app).await;
            let case = format!("candidates {with_candidates}, request {request}: {took:?}");
            assert_eq!(status, StatusCode::OK, "{case}");
            let expected = usize::from(request < 3);
            assert_eq!(questions() - before, expected, "{case}");
            let is_excused = stalls.longest().is_some();
            assert!(took < millis(290) || is_excused, "{case}");
        }
    }
}

/// Clients leave at every moment of a hang. Nothing of them is left, and Redis decides again.
#[tokio::test]
async fn clients_that_leave_during_a_hang() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let store = connected(&proxy.url).await.processes(1);
    let layer = |path| layer(path, OnError::Fallback, &store).wait(millis(100));
    let app = behind_layers(["inner", "middle", "outer"].map(layer));
    let decided = async |source: Source| decided_by(&send(&app, "/").await) == Some(source);
    eventually("Redis decides", async || decided(Source::Redis).await).await;
    sleep(millis(300)).await;
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    let mut random = Random::new(3);
    for round in 0..4 {
        proxy.all(Mode::Hold);
        let mut clients = JoinSet::new();
        for _ in 0..200 {
            let (app, stays) = (app.clone(), millis(random.below(150)));
            clients.spawn(async move {
                let _ = timeout(stays, send(&app, "/")).await;
            });
        }
        sleep(millis(random.below(80))).await;
        if round % 2 == 0 {
            clients.abort_all();
        }
        while clients.join_next().await.is_some() {}
        assert!(decided(Source::Fallback).await, "it hangs");
        proxy.all(Mode::Pass);
        eventually("Redis decides", async || decided(Source::Redis).await).await;
    }
    let is_so = async || tasks.num_alive_tasks() <= before;
    eventually("no task is left", is_so).await;
}

/// Many requests at once: each pays for one question, and on a machine that does not stand still
/// for one time-out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_over_a_hang() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let asked = listening(&proxy).await;
    let store = Resilient::bare(asked.clone()).timeout(LONG).failures(10);
    let layer = |path| {
        let rule = with_policy(path, OnError::Proceed);
        let rule = rule.with_key(|head: &http::request::Parts| {
            Ok(Key::from(head.uri.query().unwrap_or_default()))
        });
        RateLimitLayer::from_rule(rule).store(store.clone())
    };
    let app = behind_layers(["inner", "middle", "outer"].map(layer));
    assert_eq!(send(&app, "/").await.status(), StatusCode::OK);
    let stalls = Stalls::watch(&[&server.url], millis(80)).await;
    proxy.all(Mode::BlackHole);
    let requests = (0..200_u64).map(|at| {
        let app = app.clone();
        async move {
            sleep(millis(at * 3)).await;
            let began = Instant::now();
            let response = send(&app, &format!("/?{at}")).await;
            assert_eq!(response.status(), StatusCode::OK);
            began.elapsed()
        }
    });
    let slowest = join_all(requests).await.into_iter().max();
    for at in 0..200_u64 {
        let key = Key::from(at.to_string().as_str());
        let questions = asked.asked(|take| !take.only_looks() && *take.key() == key);
        assert!(questions <= 1, "{questions} questions of request {at}");
    }
    let slowest = slowest.expect("some");
    let is_excused = stalls.longest().is_some();
    assert!(slowest < LONG * 2 - millis(50) || is_excused, "{slowest:?}");
}

/// A store with settings at their ends answers, or fails, and never panics.
#[tokio::test]
async fn stores_with_settings_at_their_ends() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let base = || shop(&proxy.url);
    let unforgiving = base().probe_every(Duration::MAX).failures(1);
    let stores = [
        (base().timeout(Duration::MAX), true),
        (base().timeout(Duration::ZERO), false),
        // One failure is for ever, so none may come of a busy machine.
        (unforgiving.timeout(PATIENT), true),
        (base().probe_every(Duration::ZERO).failures(0), true),
        (base().failures(u32::MAX), true),
        (base().denial_cache(Duration::MAX), true),
        (base().denial_cache(Duration::ZERO), true),
        (base().in_flight(0), false),
        (base().in_flight(usize::MAX), true),
        (base().processes(u32::MAX).fallback_keys(0), true),
        (base().processes(u32::MAX).fallback_keys(usize::MAX), true),
    ];
    for (at, (store, decides)) in stores.into_iter().enumerate() {
        let store = store.connect().await.expect("a server");
        // Whoever has patience asks an overloaded store again.
        let patience = if decides { Duration::MAX } else { millis(100) };
        for wait in [Duration::ZERO, patience] {
            let layer = |path: &str| layer(path, OnError::Proceed, &store).wait(wait);
            let app = behind_layers(["inner", "outer"].map(layer));
            let mut is_decided = false;
            let began = Instant::now();
            while !is_decided && began.elapsed() < PATIENT {
                let response = send(&app, "/").await;
                assert_eq!(response.status(), StatusCode::OK, "store {at}");
                is_decided = decided_by(&response) == Some(Source::Redis);
                if !decides {
                    break;
                }
                sleep(millis(10)).await;
            }
            assert_eq!(is_decided, decides, "store {at}");
            let _ = store.capabilities().timeout;
        }
    }
    // And while it hangs.
    let store = connected(&proxy.url).await;
    let store = store.timeout(Duration::from_secs(u64::MAX));
    let store = Resilient::bare(store).timeout(millis(200));
    proxy.all(Mode::BlackHole);
    let (status, took) = timed(&two_layers(&store)).await;
    assert_eq!(status, StatusCode::OK);
    assert!(took < millis(380), "{took:?}");
}

/// The fields of draft 7 and of the legacy generation show the tightest of all layers: the fewest
/// units left, then the latest reset.
#[tokio::test]
async fn the_tightest_of_all_layers() {
    let mut random = Random::new(9);
    for round in 0..150 {
        let clock = ManualClock::default();
        clock.set(1_800_000_000_000_000);
        let store = Arc::new(MemoryStore::new().clock(clock.clone()));
        let headers = [Headers::Draft7, Headers::Legacy][round % 2];
        let mut app = behind_layers([]);
        let mut rules = Vec::new();
        for at in 0..1 + random.below(4) {
            let mut policies = Vec::new();
            for window in 0..1 + random.below(3) {
                let window = Duration::from_secs(10 * (1 + window) + random.below(9));
                policies.push(quota(1 + random.below(8), window));
            }
            let rule = Rule::new(&format!("p{at}"), policies).expect("valid");
            let take = Take::new(Arc::new(rule.clone()), Key::default());
            let layer = RateLimitLayer::from_rule(rule).store(Arc::clone(&store));
            app = app.layer(layer.headers(headers));
            rules.push(take);
        }
        for step in 0..6 {
            clock.set(clock.now() + random.below(3_000_000));
            let response = send(&app, "/").await;
            if response.status() != StatusCode::OK {
                continue;
            }
            let mut tightest = (u64::MAX, 0);
            for take in &rules {
                let state = store.peek(take).await.expect("a decision");
                for quota in state.quotas() {
                    let reset = quota.reset_after().as_secs_f64().ceil() as u64;
                    let (left, latest) = tightest;
                    let one = (quota.remaining(), reset);
                    if one.0 < left || (one.0 == left && one.1 > latest) {
                        tightest = one;
                    }
                }
            }
            let fields = response.headers();
            let only = |name: &str| {
                assert_eq!(fields.get_all(name).iter().count(), 1, "{fields:?}");
                fields[name].to_str().expect("text")
            };
            let [left, reset] = match headers {
                Headers::Legacy => ["x-ratelimit-remaining", "x-ratelimit-reset"].map(only),
                _ => ["remaining=", "reset="].map(|name| {
                    let mut parts = only("ratelimit").split(", ");
                    let number = parts.find_map(|part| part.strip_prefix(name));
                    number.expect("a part")
                }),
            };
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let shown = (number(left), number(reset));
            assert_eq!(shown, tightest, "round {round}, step {step}: {fields:?}");
        }
    }
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

/// What decided about a request, if anything did.
fn decided_by(response: &Response) -> Option<Source> {
    let decision = Decision::from_extensions(response.extensions());
    decision.map(Decision::source)
}
