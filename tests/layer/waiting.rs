//! Requests that wait for units.

use std::future::{Ready, ready};

use tidegate::layer::SubjectKeys;
use tower::ServiceBuilder;
use tower::limit::ConcurrencyLimitLayer;

use crate::*;
use kit::Strict;

fn layer(store: impl Store) -> RateLimitLayer {
    RateLimitLayer::new("paced", SECOND, 2).store(store)
}

fn tenant() -> Header {
    Header::new("x-tenant")
}

fn of(tenant: &str) -> Request<Body> {
    request("/", &format!("x-tenant: {tenant}"))
}

/// Law: what is free is granted. No queue stands in front of a newcomer.
#[tokio::test(start_paused = true)]
async fn free_units_go_to_whoever_asks() {
    let app = app(kit::http::costly(layer(paused())).wait(60 * SECOND));
    assert_eq!(status(&app, "/").await, OK);
    let waits = start(&app, 0, "/", "x-cost: 2");
    sleep(SECOND / 10).await;
    let answer = ask(&app, "/", "").await;
    assert_eq!((answer.status, answer.after), (200, Duration::ZERO));
    assert_eq!(waits.await.expect("no panic").status, 200);
}

/// Law: after a burst the quota is used again, however far away the store is.
#[tokio::test(start_paused = true)]
async fn waiting_requests_use_the_quota() {
    const MAX: u64 = 400;
    for has_lanes in [false, true] {
        let layer = RateLimitLayer::new("paced", SECOND, MAX).store(far(SECOND / 100));
        let layer = match has_lanes {
            true => layer.fair_by(Header::new("x-tenant")),
            false => layer,
        };
        let app = app(layer.wait(2 * SECOND));
        // A burst, and then half as many again as the quota has units.
        let requests = (0..4_000_u64).map(|number| {
            let at = number.saturating_sub(1_000) * 1_000 / (MAX * 3 / 2);
            let tenant = format!("x-tenant: {}", number % 5);
            (at, start(&app, at, "/", &tenant))
        });
        let mut admitted = Vec::new();
        for (at, request) in requests.collect::<Vec<_>>() {
            let answer = request.await.expect("no panic");
            if answer.status == 200 {
                admitted.push(millis(at) + answer.after);
            }
        }
        for second in 1..5 {
            let begin = second * SECOND;
            let second_of = begin..begin + SECOND;
            let within = admitted.iter().filter(|at| second_of.contains(*at));
            let number = within.count() as u64;
            let case = format!("{number} in second {second}, lanes: {has_lanes}");
            assert!(number >= MAX * 9 / 10, "{case}");
        }
    }
}

/// While it waits, a request leaves the inner service to others.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_holds_no_ready_instance() {
    for store in [paused() as Arc<dyn Store>, Arc::new(far(SECOND / 100))] {
        let mut service = ServiceBuilder::new()
            .layer(layer(store).key(tenant()).wait(60 * SECOND))
            .layer(ConcurrencyLimitLayer::new(1))
            .service(Strict::default());
        let mut waiting = Vec::new();
        for at in 0..4 {
            let ready = timeout(SECOND / 10, service.ready()).await;
            let ready = ready.expect("not held").expect("no error");
            waiting.push(tokio::spawn(ready.call(of("busy"))));
            sleep(SECOND / 50).await;
            assert_eq!(waiting[at].is_finished(), at < 2);
        }
        let other = timeout(SECOND / 10, service.clone().oneshot(of("other"))).await;
        assert_eq!(other.expect("not held").expect("no error").status(), OK);
        for answer in waiting {
            let answer = answer.await.expect("no panic").expect("no error");
            assert_eq!(answer.status(), OK);
        }
    }
}

/// The service is made ready again for a request that has waited; its errors reach the caller.
#[tokio::test(start_paused = true)]
async fn an_inner_service_that_fails_to_get_ready_is_an_error_of_its_own() {
    /// Only the first so many times it gets ready.
    #[derive(Clone)]
    struct Fails(Arc<AtomicUsize>);

    impl Service<Request<Body>> for Fails {
        type Response = Response<Body>;
        type Error = std::io::Error;
        type Future = Ready<std::io::Result<Response<Body>>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            let healthy = self.0.load(Ordering::Relaxed);
            self.0.store(healthy.saturating_sub(1), Ordering::Relaxed);
            Poll::Ready(match healthy {
                0 => Err(std::io::Error::other("broken")),
                _ => Ok(()),
            })
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            ready(Ok(Response::new(Body::empty())))
        }
    }

    let layer = RateLimitLayer::new("paced", SECOND, 1).store(paused());
    let healthy = Arc::new(AtomicUsize::new(2));
    let service = layer.wait(60 * SECOND).layer(Fails(Arc::clone(&healthy)));
    assert!(service.clone().oneshot(get("/")).await.is_ok());
    let error = service.oneshot(get("/")).await.expect_err("not ready");
    assert_eq!(error.to_string(), "broken");
}

/// A server that goes away while requests wait is a failure, and no denial.
#[tokio::test]
async fn a_store_that_fails_meanwhile_is_a_503() {
    let mut server = kit::Redis::start();
    let limits = Limits::new([kit::owned_rule("paced", 1, SECOND)]);
    let limits = limits.store(store_on(&server).await);
    let app = app(limits.layer("paced").wait(2 * PATIENT));
    assert_eq!(status(&app, "/").await, OK);
    let waits = spawn(&app, "/");
    let is_waiting = async || counted(&limits, "paced").waiting == 1;
    kit::eventually("it waits", is_waiting).await;
    server.kill();
    let answer = waits.await.expect("no panic");
    assert_eq!(answer, StatusCode::SERVICE_UNAVAILABLE);
}

/// Whoever waits is denied when the process ends, and whoever comes then does not wait: requests,
/// calls, turns, and those that a store did not answer since it was overloaded.
#[tokio::test(start_paused = true)]
async fn those_who_wait_are_denied_when_the_process_ends() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let overloaded = Stub::failing(StoreErrorKind::Overloaded);
    for (store, is_overloaded) in [
        (paused() as Arc<dyn Store>, false),
        (Arc::new(overloaded), true),
    ] {
        let rule = owned_rule("p", 1, SECOND).with_algorithm(Algorithm::Gcra);
        let limits = Limits::new([rule]).store(store);
        let app = app(limits.layer("p").wait(PATIENCE));
        let wait_all = || {
            let all = (0..40).map(|_| {
                let (calls, app) = (limits.clone(), app.clone());
                let partner = limits.outgoing("p").wait(PATIENCE);
                tokio::spawn(async move {
                    let call = calls.check("p", "k").wait(PATIENCE).into_future();
                    let request = status(&app, "/");
                    let (call, turn, request) = tokio::join!(call, partner.ready("k"), request);
                    [call.is_ok(), turn.is_ok(), request == 200]
                })
            });
            all.collect::<Vec<_>>()
        };
        let waiting = wait_all();
        sleep(millis(2_100)).await;
        let finished = waiting.iter().filter(|it| it.is_finished()).count();
        assert!(finished <= 2, "{finished}");
        let stopped = Instant::now();
        limits.stop_waiting();
        let waited = join_all(waiting).await;
        let answers = waited.iter().flat_map(|it| it.as_ref().expect("no panic"));
        let admitted = answers.filter(|is_admitted| **is_admitted).count();
        assert_eq!(admitted == 0, is_overloaded, "{admitted}");
        join_all(wait_all()).await;
        // A path that was not asked about before.
        assert!(limits.check("p", "k").wait(PATIENCE).await.is_err());
        assert!(stopped.elapsed() <= millis(60), "{:?}", stopped.elapsed());
        assert_eq!(limits.snapshot().rules[0].waiting, 0);
    }
}

#[test]
fn scenes() {
    kit::timeline::play("tests/layer/waiting.txt");
}

#[test]
fn open_charges() {
    kit::timeline::play("tests/layer/open_charges.txt");
}

/// A rule of one user and of all, or of one key, whose quota and permit are used up.
async fn crossing(quotas: &str, fair_by: &str, keys: SubjectKeys) -> Duration {
    let way = millis(10);
    let store = Stub::delayed(paused(), move || (way, way));
    let store = store.capabilities_fn(|memory| memory.capabilities());
    let limits = of_toml(&format!("[rules.p]\n{fair_by}quotas = [{quotas}]"));
    let limits = limits.store(store);
    let call = || limits.check("p", keys.clone());
    let begun = Instant::now();
    let first = call().await.expect("all is there");
    let waits = tokio::spawn(call().wait(PATIENT).into_future());
    // It asks once more at 1,000 ms, which is decided 10 ms later, when the unit is free.
    sleep(millis(1_015) - begun.elapsed()).await;
    drop(first);
    let freed = Instant::now();
    waits.await.expect("no panic").expect("room");
    freed.elapsed()
}

/// The permit comes back while a question is under way which says that it is missing.
#[tokio::test(start_paused = true)]
async fn a_permit_that_crosses_a_question_is_not_missed() {
    let key = "{ max-count = 1, window = \"1s\" }, { max-concurrent = 1 }";
    let user = "{ max-count = 1, window = \"1s\", key = \"everyone\", subject = \"all\" }, \
                { max-concurrent = 1, key = \"header:x-user\", subject = \"user\" }";
    for fair_by in ["", "fair-by = \"header:x-tenant\"\n"] {
        let by_user = format!("{fair_by}key = \"header:x-user\"\n");
        let of_user = SubjectKeys::from([("user", "a"), ("all", "")]);
        let one = crossing(key, &by_user, "a".into());
        for took in [one.await, crossing(user, fair_by, of_user).await] {
            assert!(took <= millis(60), "{fair_by} {took:?}");
        }
    }
}

/// What a refund gives back of a quota with a cost of its own alone, since the request's units have
/// left their window.
#[tokio::test(start_paused = true)]
async fn units_of_a_cost_of_their_own_wake_who_waits() {
    // GCRA gives back what has not drained, in whole units.
    let windows = Algorithm::ALL.into_iter();
    for algorithm in windows.filter(|it| *it != Algorithm::Gcra) {
        let own = Policy::new("requests", quota(3, 60 * SECOND)).with_cost(3);
        let policies = [Policy::new("units", quota(10, millis(100))), own];
        let rule = Rule::with_policies("p", policies).expect("valid");
        let rule = rule.with_algorithm(algorithm).with_settling(true);
        let limits = Limits::new([rule]).store(paused());
        let first = limits.check("p", "k").cost(5).await.expect("room");
        sleep(millis(300)).await;
        let waits = tokio::spawn(limits.check("p", "k").wait(100 * SECOND).into_future());
        sleep(millis(50)).await;
        let begun = Instant::now();
        let given_back = first.charge.expect("a charge").refund().await;
        waits.await.expect("no panic").expect("room");
        let took = begun.elapsed();
        assert!(took <= millis(2), "{algorithm:?}: {given_back:?}, {took:?}");
    }
}
