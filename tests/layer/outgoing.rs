//! Calls to a partner: what its answers hold, who obeys, and what a file may say.

use std::future::pending;

use tidegate::limits::Outgoing;
use tidegate::rule::Lockout;
use tower::retry::{Policy, Retry};

use crate::*;

fn rule(max: u64) -> Rule {
    let rule = per_minute("partner", max).with_outgoing();
    rule.expect("one subject")
}

fn limits(max: u64) -> Limits {
    Limits::new([rule(max)])
}

/// Waits for a turn, takes it and ends the call.
async fn call(partner: &Outgoing, key: &str) {
    drop(partner.ready(key).await.expect("a turn"));
}

/// What the partner's answers lead to.
async fn heard() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// One call that is answered so, perhaps with `retry-after`.
async fn hear(partner: &Outgoing, key: &str, status: StatusCode, retry_after: Option<u64>) {
    let turn = partner.ready(key).await.expect("a turn");
    let retry_after = retry_after.map(|seconds| (http::header::RETRY_AFTER, seconds.into()));
    turn.observe_response(status, &HeaderMap::from_iter(retry_after));
    heard().await;
}

/// For how many seconds the key gets no turn.
async fn held(limits: &Limits, key: &str) -> Option<u64> {
    let refused = limits.outgoing("partner").ready(key).await.err()?;
    let is_on_hold = refused.decision().is_some_and(|it| it.is_on_hold());
    assert!(is_on_hold, "{refused}");
    Some(refused.retry_after()?.as_secs_f64().round() as u64)
}

#[tokio::test(start_paused = true)]
async fn a_refusal_holds_its_key() {
    let (log, limits) = (Log::start(), limits(100));
    let partner = limits.outgoing("partner");
    hear(&partner, "us", OK, None).await;
    hear(&partner, "us", StatusCode::BAD_GATEWAY, Some(9)).await;
    assert_eq!(held(&limits, "us").await, None);
    hear(&partner, "us", DENIED, Some(9)).await;
    assert_eq!(held(&limits, "us").await, Some(9));
    assert_eq!(held(&limits, "them").await, None, "another key");
    let lines = log.lines_with_debug();
    let is_told = |it: &String| it.contains("requests were denied") && it.contains("denied=1 ");
    assert!(lines.iter().any(is_told), "{lines:?}");

    // It waits for the end, if that is near enough.
    let begun = Instant::now();
    let patient = partner.clone().wait(8 * SECOND);
    assert!(patient.ready("us").await.is_err());
    assert_eq!(begun.elapsed(), Duration::ZERO, "it is not near enough");
    call(&patient.wait(10 * SECOND), "us").await;
    assert!(begun.elapsed() >= 9 * SECOND);
    assert_eq!(held(&limits, "us").await, None);

    hear(&partner, "us", StatusCode::SERVICE_UNAVAILABLE, None).await;
    assert_eq!(held(&limits, "us").await, Some(1));
    let counted = counted(&limits, "partner");
    assert_eq!(counted.decisions(DecisionOutcome::OnHold), 3);
    assert_eq!(counted.decisions(DecisionOutcome::Denied), 0);
}

/// A store of an application's own, which asks the one within when it is polled.
fn asked_when_polled() -> Stub {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let [one, other] = [(); 2].map(|()| Arc::clone(&inner));
    let stub = Stub::around(inner).capabilities_fn(|inner| inner.capabilities());
    let stub = stub.refund_fn(move |_, ask, receipt| {
        let (store, ask, receipt) = (Arc::clone(&one), ask.clone(), receipt.clone());
        StoreFuture::boxed(async move { store.refund(&ask, &receipt).await })
    });
    stub.change_fn(move |_, ask, change| {
        let (store, ask, change) = (Arc::clone(&other), ask.clone(), change.clone());
        StoreFuture::boxed(async move { store.change(&ask, &change).await })
    })
}

/// Asks once more after a refusal, as clients do.
#[derive(Clone)]
struct AtOnce;

impl<B, E> Policy<Request<()>, Response<B>, E> for AtOnce {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<()>,
        answer: &mut Result<Response<B>, E>,
    ) -> Option<Self::Future> {
        let is_refusal = answer.as_ref().is_ok_and(|it| it.status() == DENIED);
        is_refusal.then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, _: &Request<()>) -> Option<Request<()>> {
        Some(Request::new(()))
    }
}

/// What a task asks next is behind the hold that it has told: each time, by each store, in runtimes
/// of one thread and of several.
#[test]
fn a_hold_is_before_the_next_call() {
    use tokio::runtime::Builder;
    let server = Redis::start();
    for mut runtime in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let runtime = runtime.enable_all().build().expect("a runtime");
        let task = in_fifty_rounds(server.url.to_string());
        runtime.block_on(async { tokio::spawn(task).await.expect("no panic") });
        kit::run(&server, "FLUSHALL");
    }
}

async fn in_fifty_rounds(url: String) {
    let redis = RedisStore::connect(&*url).await.expect("a server");
    let resilient = Resilient::redis(&*url, "shop").expect("a valid address");
    let resilient = resilient.timeout(PATIENT).build();
    let stores: [Arc<dyn Store>; 5] = [
        Arc::new(MemoryStore::new()),
        Arc::new(redis.timeout(PATIENT)),
        Arc::new(resilient),
        Arc::new(asked_when_polled()),
        Arc::new(Resilient::new(asked_when_polled())),
    ];
    for (at, store) in stores.into_iter().enumerate() {
        let limits = limits_of(&rule(1_000), &store);
        limits.ready(PATIENT).await.expect("it decides");
        let sent = Arc::new(AtomicUsize::new(0));
        for round in 0..50 {
            let key = format!("{at} {round}");
            let partner = limits.outgoing("partner");
            let turn = partner.ready(&*key).await.expect("a turn");
            let fields = HeaderMap::from_iter([(http::header::RETRY_AFTER, 5.into())]);
            turn.observe_response(DENIED, &fields);
            let next = partner.ready(&*key).await;
            assert!(next.is_err(), "store {at}, round {round}");

            let key = format!("{key} by retry");
            let client = partner.key_by(move |_| Key::from(&*key));
            let counted = Arc::clone(&sent);
            let client = client.layer(service_fn(move |_: Request<()>| {
                counted.fetch_add(1, Ordering::Relaxed);
                let answer = Response::builder().status(429).header("retry-after", 5);
                let answer = answer.body(()).expect("valid");
                async { Ok::<_, Infallible>(answer) }
            }));
            let answer = Retry::new(AtOnce, client).oneshot(Request::new(())).await;
            assert!(matches!(answer, Err(CallError::Denied(_))), "{answer:?}");
        }
        assert_eq!(sent.load(Ordering::Relaxed), 50, "store {at}");
    }
}

/// So is a refund, and a failure that locks out.
#[tokio::test]
async fn what_else_nobody_awaits_is_before_the_next_call() {
    let lockout = Lockout::after(1).hold([HOUR]).on(["401"]);
    let login = per_minute("login", 100).with_lockout(lockout);
    let rules = [refunding("refunded", 1, &["5xx"]), login.expect("valid")];
    let limits = Limits::new(rules).key(Everyone);
    let limits = limits.store(asked_when_polled());
    let (layer, handler) = (limits.layer("refunded"), async || StatusCode::BAD_GATEWAY);
    let app = Router::new().route("/", axum::routing::get(handler).layer(layer));
    for round in 0..50 {
        assert_eq!(status(&app, "/").await, StatusCode::BAD_GATEWAY, "{round}");
        let key = format!("{round}");
        let admitted = limits.check("login", &*key).await.expect("it may");
        admitted.charge.expect("charged").failed();
        assert!(limits.check("login", &*key).await.is_err(), "{round}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_cut_is_told() {
    let (log, limits) = (Log::start(), limits(100));
    hear(&limits.outgoing("partner"), "us", DENIED, Some(9_999)).await;
    assert_eq!(held(&limits, "us").await, Some(3_600));
    assert_eq!(log.count("a hold was cut to hold-at-most"), 1);
}

/// The recipe for a partner such as GitHub: what is used up of one resource holds no other one.
#[tokio::test]
async fn a_key_for_each_resource() {
    // A minute later.
    let (date, reset) = ("Thu, 26 Nov 2026 08:00:00 GMT", "1795680060");
    for store in &Stores::start().await.all {
        let limits = limits_of(&rule(80), store);
        let github = limits
            .outgoing("partner")
            .key_by(|head| match head.uri.path() {
                "/graphql" => Key::from("graphql"),
                "/search/code" => Key::from("code_search"),
                path if path.starts_with("/search/") => Key::from("search"),
                _ => Key::from("core"),
            });
        let client = github.layer(service_fn(move |request: Request<()>| {
            let is_search = request.uri().path() == "/search/issues";
            let answer = Response::builder().header("date", date);
            let answer = answer.header("x-ratelimit-reset", reset);
            let answer = match is_search {
                true => answer.header("x-ratelimit-remaining", 0).status(403),
                false => answer.header("x-ratelimit-remaining", 4_000),
            };
            let resource = if is_search { "search" } else { "core" };
            let answer = answer.header("x-ratelimit-resource", resource).body(());
            async { answer }
        }));
        let send = async |path: &str| {
            let request = Request::builder().uri(path).body(()).expect("valid");
            let answer = client.clone().oneshot(request).await;
            answer.map(|it| it.status().as_u16())
        };
        assert_eq!(send("/search/issues").await.expect("a turn"), 403);
        eventually("a hold", async || send("/search/users").await.is_err()).await;
        for path in ["/search/code", "/graphql", "/user", "/repos/a/b"] {
            assert_eq!(send(path).await.expect("a turn"), 200, "{path}");
        }
    }
}

/// A later answer lengthens a hold, and never shortens it. A reset ends it.
#[tokio::test(start_paused = true)]
async fn how_long_it_lasts() {
    let limits = limits(100);
    let hold = async |seconds| {
        let time = Duration::from_secs(seconds);
        limits.hold("partner", "us", time).await.expect("an answer")
    };
    assert_eq!(hold(60).await, 60 * SECOND);
    advance(30 * SECOND).await;
    assert_eq!(hold(10).await, 30 * SECOND);
    assert_eq!(hold(40).await, 40 * SECOND);
    assert_eq!(hold(u64::MAX).await, HOUR, "it is cut");
    assert!(limits.reset("partner", "us").await.expect("an answer"));
    assert_eq!(held(&limits, "us").await, None);
    assert_eq!(hold(0).await, Duration::ZERO);
    assert_eq!(held(&limits, "us").await, None);

    let shorter = rule(100).with_hold_at_most(5 * SECOND);
    limits.rules().replace(Rules::from([shorter]));
    assert_eq!(hold(60).await, 5 * SECOND);
}

/// Around a client: each call is sent once or not at all, and its errors stay its own.
#[tokio::test(start_paused = true)]
async fn a_layer_around_a_client() {
    let limits = limits(3);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let client = service_fn(move |request: Request<&'static str>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            match *request.body() {
                "breaks" => Err("broken"),
                "never" => pending().await,
                _ => {
                    let answer = Response::builder().status(429).header("retry-after", "2");
                    Ok(answer.body("too many").expect("valid"))
                }
            }
        }
    });
    let tenant = |head: &http::request::Parts| {
        let tenant = head.headers.get("x-tenant").map(|it| it.as_bytes());
        Key::default().with(tenant.unwrap_or_default())
    };
    let mut client = limits.outgoing("partner").key_by(tenant).layer(client);
    let request = |tenant: &str, body| {
        let request = Request::builder().header("x-tenant", tenant);
        request.body(body).expect("valid")
    };
    let ready = client.ready().await.expect("always");
    let broken = ready.call(request("a", "breaks")).await;
    assert!(matches!(broken, Err(CallError::Inner("broken"))));
    // A call that is dropped holds nothing, and stays counted.
    let never = client.call(request("a", "never"));
    assert!(timeout(SECOND, never).await.is_err());
    let answer = client.call(request("a", "")).await.expect("the partner's");
    assert_eq!(answer.status(), DENIED);
    assert_eq!(answer.into_body().into_inner(), "too many");
    heard().await;
    let held = client.call(request("a", "")).await;
    assert!(matches!(&held, Err(CallError::Denied(_))), "{held:?}");
    assert_eq!(sent.load(Ordering::Relaxed), 3);
    client.call(request("b", "")).await.expect("another tenant");
}

#[tokio::test(start_paused = true)]
async fn a_partner_that_holds_everything() {
    let limits = limits(5);
    let partner = limits.outgoing("partner");
    let fields = HeaderMap::from_iter([(http::header::RETRY_AFTER, 999_999_999_u64.into())]);
    for key in 0..10_000_u64 {
        let turn = partner.ready(key).await.expect("a turn");
        turn.observe_response(DENIED, &fields);
    }
    sleep(millis(1)).await;
    assert_eq!(held(&limits, "9999").await, Some(3_600));
    assert_eq!(held(&limits, "another").await, None);
    advance(HOUR).await;
    assert_eq!(held(&limits, "9999").await, None);
}

/// A client of tower's: what a layer needs of it is that it can be cloned.
#[tokio::test(start_paused = true)]
async fn a_boxed_client() {
    let client = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let client = tower::util::BoxCloneService::new(client);
    let client = limits(1).outgoing("partner").layer(client);
    let ask = || client.clone().oneshot(Request::new(()));
    ask().await.expect("a turn");
    let denied = ask().await.expect_err("used up").to_string();
    let expected = "the limit of partner is used up";
    assert!(denied.starts_with(expected), "{denied}");
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_not_outgoing_holds_nothing() {
    let limits = Limits::new([per_minute("partner", 5)]);
    let error = limits.hold("partner", "us", SECOND).await;
    let error = error.expect_err("it is not outgoing").to_string();
    let expected = "\"partner\" has no rule with outgoing = true, which a hold needs";
    assert_eq!(error, expected);
    assert!(limits.hold("nobody's", "us", SECOND).await.is_err());
    let partner = limits.outgoing("partner");
    assert_eq!(kit::kinds(&limits), "NotOutgoing");
    hear(&partner, "us", DENIED, Some(9)).await;
    assert!(partner.ready("us").await.is_ok());
}

/// What each turn of an even pace costs the store is one question, however many wait. No turn is
/// lost, also where a round trip takes longer than a turn.
#[tokio::test(start_paused = true)]
async fn a_turn_of_an_even_pace_is_one_question() {
    for (max, turn, round_trip) in [(20, millis(50), 2), (200, millis(5), 30)] {
        let store = far(millis(round_trip));
        let limits = of_toml(&format!(
            "[rules.partner]\nmax-count = {max}\nwindow = \"1s\"\noutgoing = true\npace = \"even\"",
        ));
        let limits = limits.store(store.clone());
        let partner = limits.outgoing("partner").wait(10 * SECOND);
        let begun = Instant::now();
        join_all((0..100).map(|_| call(&partner, "us"))).await;
        let (took, asked) = (begun.elapsed(), store.takes().len());
        let most = turn * 100 + 3 * millis(round_trip);
        assert!(took <= most, "{max}: {took:?} for {most:?}");
        assert!((190..=230).contains(&asked), "{max}: {asked} questions");
    }
}

/// Whoever a store did not answer, since it was overloaded, asks again in its turn.
#[tokio::test(start_paused = true)]
async fn a_crowd_asks_an_overloaded_store_in_turn() {
    let asked = Arc::new(AtomicUsize::new(0));
    let store = Stub::listening(MemoryStore::new().tokio_clock()).take_fn(move |inner, take| {
        if asked.load(Ordering::Relaxed) == 10 {
            let error = StoreError::new(StoreErrorKind::Overloaded, "ten are in progress");
            return StoreFuture::ready(Err(error));
        }
        asked.fetch_add(1, Ordering::Relaxed);
        let (asked, answer) = (Arc::clone(&asked), inner.take(take));
        StoreFuture::boxed(async move {
            sleep(millis(2)).await;
            asked.fetch_sub(1, Ordering::Relaxed);
            answer.await
        })
    });
    let limits = limits(5_000).store(store.clone());
    let partner = limits.outgoing("partner").wait(10 * SECOND);
    join_all((0..2_000).map(|_| call(&partner, "us"))).await;
    assert!(store.takes().len() <= 4 * 2_000);
}

#[tokio::test(start_paused = true)]
async fn an_even_pace() {
    let limits = of_toml(
        "[rules.partner]\nmax-count = 10\nwindow = \"1s\"\noutgoing = true\npace = \"even\"\n\
         hold-at-most = \"5m\"",
    );
    let rules = limits.rules().load();
    let rule = rules.get("partner").expect("a rule");
    assert!(rule.is_outgoing() && rule.hold_at_most() == 300 * SECOND);
    let partner = limits.outgoing("partner").wait(5 * SECOND);
    let begun = Instant::now();
    for number in 0..21 {
        call(&partner, "us").await;
        let (earliest, took) = (millis(100) * number, begun.elapsed());
        let is_right = (earliest..earliest + millis(100)).contains(&took);
        assert!(is_right, "{took:?}");
    }
}
