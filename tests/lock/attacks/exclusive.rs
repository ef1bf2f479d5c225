//! `ExclusiveLayer` with clients that leave, handlers that panic and bodies that nobody reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use test_support::Redis as Server;
use tidegate::lock::ExclusiveLayer;
use tidegate::{Header, Redis};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use crate::helpers::{behind, check_expiries, handle, millis};

const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn layer(redis: &Redis) -> ExclusiveLayer {
    let tenant = Header::new("x-tenant");
    ExclusiveLayer::new(redis, "export").key(tenant)
}

async fn send<S>(service: &S, tenant: &str) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = BoxError> + Clone,
{
    let request = Request::get("/").header("x-tenant", tenant);
    let request = request.body(Body::empty()).expect("valid");
    service.clone().oneshot(request).await.expect("no error")
}

/// A handler that sees how many of it run, and takes some milliseconds.
#[derive(Clone, Default)]
struct Handler {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// Counts down also when the handler is dropped.
struct Inside(Arc<AtomicUsize>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler {
    async fn call(self, panics: bool) -> Result<Response<Body>, BoxError> {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let _inside = Inside(self.inside);
        sleep(millis(3)).await;
        if panics {
            // Without a word on the standard error.
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        Ok(Response::new(Body::from("a,b,c")))
    }
}

/// Clients that leave at every moment, from before the permit to after the response, and panics:
/// never more than the permits at a time, and all are free in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_at_every_moment() {
    const PERMITS: usize = 3;
    let server = Server::start();
    let proxy = behind(&server, millis(2)).await;
    let handler = Handler::default();
    let mut services = Vec::new();
    for url in [&proxy.url, &server.url] {
        let handler = handler.clone();
        let layer = layer(&handle(url).await)
            .permits(PERMITS as u32)
            .wait(millis(400));
        let calls = Arc::<AtomicUsize>::default();
        services.push(layer.layer(service_fn(move |_: Request<Body>| {
            let panics = calls.fetch_add(1, Ordering::SeqCst) % 7 == 3;
            handler.clone().call(panics)
        })));
    }
    let requests = (0..500_u64).map(|at| {
        let service = services[at as usize % 2].clone();
        tokio::spawn(async move {
            sleep(Duration::from_micros(at * 2_000)).await;
            let patience = Duration::from_micros(at * 7_919 % 30_000);
            let response = std::panic::AssertUnwindSafe(send(&service, "a")).catch_unwind();
            let Ok(Ok(response)) = timeout(patience, response).await else {
                return false;
            };
            if at % 3 == 0 {
                // A body that is kept for a while, unread.
                sleep(Duration::from_micros(at * 13 % 2_000)).await;
            }
            response.status() == OK
        })
    });
    let began = Instant::now();
    for _ in 0..30 {
        let asked = Instant::now();
        let response = std::panic::AssertUnwindSafe(send(&services[0], "bystander"));
        let _ = response.catch_unwind().await;
        assert!(
            asked.elapsed() < Duration::from_secs(5),
            "law 13: {:?}",
            asked.elapsed()
        );
    }
    let served = join_all(requests).await.into_iter();
    let served = served
        .filter(|served| *served.as_ref().expect("no panic"))
        .count();
    println!("{served} of 500 served in {:?}", began.elapsed());
    assert!(served > 20);
    let most = handler.most.load(Ordering::SeqCst);
    // The bystander's may run beside them.
    assert!(most <= PERMITS + 1, "{most} at a time");
    assert_eq!(handler.inside.load(Ordering::SeqCst), 0);
    sleep(millis(300)).await;
    let left: Vec<String> = redis::cmd("KEYS")
        .arg("Exclusive:*")
        .query(&mut server.connection())
        .expect("the keys");
    for key in left {
        let members = redis::cmd("ZCARD")
            .arg(&key)
            .query::<u64>(&mut server.connection());
        assert_eq!(members.expect("a set"), 0, "law 9: permits of {key}");
    }
    check_expiries(&server, &[]);
}

/// A body that is held keeps the permit, and only that of its key; who waits hears of its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_nobody_reads() {
    let server = Server::start();
    let proxy = behind(&server, millis(2)).await;
    let service = layer(&handle(&proxy.url).await).lease(Duration::from_secs(1));
    let hasty = service.clone().layer(service_fn(|_: Request<Body>| {
        Handler::default().call(false)
    }));
    let waits = service.wait(Duration::from_secs(10));
    let waits = waits.layer(service_fn(|_: Request<Body>| {
        Handler::default().call(false)
    }));
    let held = send(&hasty, "a").await;
    assert_eq!(held.status(), OK);
    let mut queue = JoinSet::new();
    for at in 0..20 {
        let waits = waits.clone();
        // Half of those who wait give up.
        queue.spawn(async move {
            let patience = if at % 2 == 0 {
                millis(1_000)
            } else {
                Duration::from_secs(9)
            };
            timeout(patience, send(&waits, "a"))
                .await
                .is_ok_and(|response| response.status() == OK)
        });
    }
    let began = Instant::now();
    while began.elapsed() < millis(2_300) {
        assert_eq!(
            send(&hasty, "a").await.status(),
            DENIED,
            "renewed while the body lives"
        );
        // A machine that stands still may cost a connection, and with it one answer.
        let mut others = send(&hasty, "b").await.status();
        if others == StatusCode::SERVICE_UNAVAILABLE {
            others = send(&hasty, "b").await.status();
        }
        assert_eq!(others, OK, "law 13");
        sleep(millis(50)).await;
    }
    drop(held);
    let served = timeout(Duration::from_secs(6), queue.join_all()).await;
    let served = served.expect("law 6").into_iter().filter(|is| *is).count();
    assert_eq!(served, 10, "those who waited on");
    sleep(millis(100)).await;
    assert_eq!(send(&hasty, "a").await.status(), OK);
    check_expiries(&server, &[]);
}

/// Without permits, every request is denied at once, however long it would wait, without asking.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permits_at_all() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let none = layer(&redis).permits(0).wait(Duration::MAX);
    let none = none.layer(service_fn(|_: Request<Body>| {
        Handler::default().call(false)
    }));
    let began = Instant::now();
    let responses = join_all((0..100).map(|_| send(&none, "a"))).await;
    assert!(responses.iter().all(|response| response.status() == DENIED));
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.connection())
        .expect("statistics");
    let calls = stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"));
    let calls: Vec<_> = calls.collect();
    let calls = calls
        .iter()
        .filter_map(|line| line.split_once("calls=")?.1.split(',').next());
    let calls: u64 = calls
        .map(|calls| calls.parse::<u64>().expect("a number"))
        .sum();
    assert!(calls <= 110, "{calls} calls for 100 requests");
}
