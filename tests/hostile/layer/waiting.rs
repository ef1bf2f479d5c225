//! `.wait()`: the quota is used, whoever asks gets what is free, nobody fills all places.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use kit::Redis;
use tidegate::{Header, RateLimitLayer, RedisStore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::limit::ConcurrencyLimitLayer;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use kit::stalls::Stalls;
use kit::{Allowed, PATIENT, behind, check_windows, connect, millis};

const SECOND: Duration = Duration::from_secs(1);
const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn of(tenant: &str) -> Request<Body> {
    let request = Request::get("/").header("x-tenant", tenant);
    request.body(Body::empty()).expect("valid")
}

fn layer(store: &RedisStore, window: Duration, max: u64) -> RateLimitLayer {
    let tenant = Header::new("x-tenant");
    RateLimitLayer::new("paced", window, max)
        .store(store.clone())
        .key(tenant)
}

async fn handler(_: Request<Body>) -> Result<Response<Body>, BoxError> {
    Ok(Response::new(Body::empty()))
}

/// The status of the answer; every use of the service is a clone, as in a server.
async fn send<S>(service: &S, tenant: &str) -> StatusCode
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone,
    S::Error: std::fmt::Debug,
{
    let answer = service.clone().oneshot(of(tenant)).await;
    answer.expect("no error").status()
}

/// At a round trip of 10 ms, 400 per second: a burst, then half as much again as is allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_quota_is_used() {
    const MAX: u64 = 400;
    let server = Redis::start();
    let proxy = behind(&server, millis(10)).await;
    let store = connect(&proxy.url, millis(500)).await;
    let service = layer(&store, SECOND, MAX)
        .wait(2 * SECOND)
        .layer(service_fn(handler));
    let stalls = Stalls::watch(&[&proxy.url], millis(100)).await;
    let began = Instant::now();
    let mut requests = JoinSet::new();
    for at in 0..3_100_u64 {
        let service = service.clone();
        let due = millis(at.saturating_sub(700) * 1_000 / (MAX * 3 / 2));
        requests.spawn(async move {
            sleep(due).await;
            let asked = Instant::now();
            let status = send(&service, "a").await;
            let answered = Instant::now();
            (status == OK).then_some(Allowed { asked, answered })
        });
    }
    let allowed: Vec<_> = requests.join_all().await.into_iter().flatten().collect();
    for second in 1..4 {
        let within = allowed
            .iter()
            .filter(|one| (one.answered - began).as_secs() == second);
        let number = within.count() as u64;
        println!("{number} in second {second}");
        // A machine that stands still comes later to what it is answered.
        if stalls.longest().is_none() {
            assert!(number >= MAX * 9 / 10, "{number} in second {second}");
            assert!(number <= MAX * 11 / 10, "{number} in second {second}");
        }
    }
    assert!(allowed.len() as u64 >= 2 * MAX, "{}", allowed.len());
    check_windows(&allowed, MAX, SECOND);
}

/// Law 14: units that become free go to whoever asks, also to those that never wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_gets_what_is_free() {
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    let store = connect(&proxy.url, millis(500)).await;
    let window = 5 * SECOND;
    let costly = layer(&store, window, 10).cost(|_| 10).wait(Duration::MAX);
    let costly = costly.layer(service_fn(handler));
    let cheap = layer(&store, window, 10).layer(service_fn(handler));
    assert_eq!(send(&cheap, "a").await, OK);
    let mut waits = JoinSet::new();
    for _ in 0..20 {
        let costly = costly.clone();
        waits.spawn(async move { send(&costly, "a").await });
    }
    sleep(millis(50)).await;
    let began = Instant::now();
    for _ in 0..8 {
        assert_eq!(send(&cheap, "a").await, OK, "nine are free");
    }
    assert!(began.elapsed() < window - SECOND);
    waits.abort_all();
}

/// One key takes a quarter of the places, whatever it does, and gives them back when its
/// requests are dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_takes_a_quarter_of_the_places() {
    let server = Redis::start();
    let store = connect(&server.url, PATIENT).await;
    let layer = layer(&store, 60 * SECOND, 1)
        .max_waiting(40)
        .wait(Duration::MAX);
    let service = layer.layer(service_fn(handler));
    for tenant in ["a", "b", "c", "d", "e"] {
        assert_eq!(send(&service, tenant).await, OK);
    }
    for _round in 0..10 {
        let mut requests = JoinSet::new();
        for at in 0..100 {
            let (service, tenant) = (service.clone(), ["a", "b", "c"][at % 3]);
            requests.spawn(async move { (tenant, send(&service, tenant).await) });
        }
        // Everybody but ten of each key is denied at once.
        for _ in 0..70 {
            let denied = timeout(SECOND * 3, requests.join_next()).await;
            let denied = denied.expect("at once").expect("there are more");
            assert_eq!(denied.expect("no panic").1, DENIED);
        }
        let waits = timeout(millis(100), requests.join_next()).await;
        assert!(waits.is_err(), "thirty wait: {waits:?}");
        // Another key has ten places left.
        let mut others = JoinSet::new();
        for _ in 0..12 {
            let service = service.clone();
            others.spawn(async move { send(&service, "d").await });
        }
        for _ in 0..2 {
            let denied = timeout(SECOND * 3, others.join_next())
                .await
                .expect("at once");
            assert_eq!(denied.expect("more").expect("no panic"), DENIED);
        }
        assert!(timeout(millis(50), others.join_next()).await.is_err());
        // No place is left for a fifth, which is denied and not made to wait.
        let fifth = timeout(SECOND * 3, send(&service, "e")).await;
        assert_eq!(fifth.expect("at once"), DENIED);
        requests.shutdown().await;
        others.shutdown().await;
    }
}

/// Waiting requests hold no permit of a concurrency limit inside, at a real distance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_holds_no_permit() {
    let server = Redis::start();
    let proxy = behind(&server, millis(6)).await;
    let store = connect(&proxy.url, PATIENT).await;
    let service = ServiceBuilder::new()
        .layer(layer(&store, SECOND / 2, 1).wait(Duration::MAX))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(service_fn(handler));
    let mut waits = JoinSet::new();
    let allowed = Instant::now();
    for _ in 0..6 {
        let service = service.clone();
        waits.spawn(async move {
            let asked = Instant::now();
            assert_eq!(send(&service, "busy").await, OK);
            let answered = Instant::now();
            Allowed { asked, answered }
        });
    }
    sleep(millis(50)).await;
    for at in 0..8 {
        assert_eq!(send(&service, &at.to_string()).await, OK);
    }
    let sent = Instant::now();
    let mut answered: Vec<_> = waits
        .join_all()
        .await
        .iter()
        .map(|one| one.answered)
        .collect();
    answered.sort_unstable();
    assert!(sent < answered[5], "they wait for those who wait");
    // One in half a second: the sixth after two and a half seconds, and not much later.
    let last = answered[5] - allowed;
    assert!(last >= millis(2_490) && last < millis(5_000), "{last:?}");
}

/// Waits that end in between, at every moment: none of them is charged after its end, and
/// afterwards the quota is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_dropped_at_every_moment() {
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    let store = connect(&proxy.url, PATIENT).await;
    let service = layer(&store, millis(200), 5)
        .wait(Duration::MAX)
        .layer(service_fn(handler));
    let requests = (0..400_u64).map(|at| {
        let service = service.clone();
        tokio::spawn(async move {
            sleep(Duration::from_micros(at * 2_500)).await;
            let _ = timeout(millis(at % 60), send(&service, "a")).await;
        })
    });
    for request in join_all(requests).await {
        request.expect("no panic");
    }
    sleep(millis(250)).await;
    let at_once = layer(&store, millis(200), 5).layer(service_fn(handler));
    let answers = join_all((0..5).map(|_| send(&at_once, "a"))).await;
    assert!(answers.iter().all(|status| *status == OK));
}

/// Two layers of one path in two "processes", both waiting, use the quota once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_wait_for_one_quota() {
    const MAX: u64 = 20;
    let server = Redis::start();
    let mut requests = JoinSet::new();
    for _ in 0..2 {
        let store = connect(&server.url, PATIENT).await;
        let service = layer(&store, millis(200), MAX).wait(Duration::MAX);
        let service = Arc::new(service).layer(service_fn(handler));
        for _ in 0..100 {
            let service = service.clone();
            requests.spawn(async move {
                let asked = Instant::now();
                assert_eq!(send(&service, "a").await, OK);
                let answered = Instant::now();
                Allowed { asked, answered }
            });
        }
    }
    let began = Instant::now();
    let allowed = requests.join_all().await;
    assert_eq!(allowed.len(), 200);
    check_windows(&allowed, MAX, millis(200));
    let took = began.elapsed();
    assert!(
        took < millis(3_600),
        "200 at 100 in a second take 1.8 s: {took:?}"
    );
}
