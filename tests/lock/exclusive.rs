//! The middleware that lets only so many requests run at a time.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{any, get};
use futures_util::StreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use redis::Commands;
use test_support::Redis;
use tidegate::lock::ExclusiveLayer;
use tidegate::{Denied, FailOpen, Failed, Header, PeerIp, Recovery, Redis as Handle, StoreError};
use tokio::sync::Notify;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::{HICCUP, at, eventually, process};

/// Handlers that run until they are told to end.
#[derive(Clone, Default)]
struct Work {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    /// How many have ever begun.
    begun: Arc<AtomicUsize>,
    end: Arc<Notify>,
}

struct Running(Work);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Work {
    async fn run(self) -> &'static str {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        let running = Running(self);
        running.0.end.notified().await;
        "a,b,c"
    }

    fn app(&self, layer: ExclusiveLayer) -> Router {
        let work = self.clone();
        let handler = get(move || work.clone().run());
        Router::new().route("/export", handler.layer(layer))
    }

    async fn running(&self, number: usize) {
        eventually("so many run", 2 * HICCUP, async || {
            self.running.load(Ordering::SeqCst) == number
        })
        .await;
    }
}

fn request() -> Request<Body> {
    Request::get("/export")
        .body(Body::empty())
        .expect("a valid request")
}

async fn send(app: &Router) -> Response<Body> {
    app.clone()
        .oneshot(request())
        .await
        .expect("axum does not fail")
}

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.expect("a whole body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

async fn out(server: &Redis, number: u64) {
    // What should not be given back would be by then.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut admin = server.connection();
    eventually(
        "so many permits are out",
        Duration::from_secs(1),
        async || admin.zcard::<_, u64>("Exclusive:export").expect("a set") == number,
    )
    .await;
}

async fn fleet(
    server: &Redis,
    change: impl Fn(ExclusiveLayer) -> ExclusiveLayer,
) -> (Work, Vec<Router>) {
    let work = Work::default();
    let mut apps = Vec::new();
    for _ in 0..2 {
        let layer = ExclusiveLayer::new(&process(server).await, "export");
        apps.push(work.app(change(layer)));
    }
    (work, apps)
}

/// Law: of many requests at once in the fleet, as many run as there are permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_of_twenty_run() {
    for permits in [1, 3] {
        let server = Redis::start();
        let (work, apps) = fleet(&server, |layer| layer.permits(permits)).await;
        let sent = (0..20).map(|at| {
            let app = apps[at % 2].clone();
            tokio::spawn(async move { send(&app).await.status() })
        });
        let sent: Vec<_> = sent.collect();
        let permits = permits as usize;
        work.running(permits).await;
        eventually("the others are denied", 2 * HICCUP, async || {
            sent.iter().filter(|task| task.is_finished()).count() == 20 - permits
        })
        .await;
        for _ in 0..permits {
            work.end.notify_one();
        }
        let mut ran = 0;
        for task in sent {
            match task.await.expect("no panic") {
                StatusCode::OK => ran += 1,
                status => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS),
            }
        }
        assert_eq!(ran, permits);
        assert_eq!(work.most.load(Ordering::SeqCst), permits);
        out(&server, 0).await;
    }
}

#[tokio::test]
async fn a_denial_is_a_problem_document_or_a_grpc_status() {
    let server = Redis::start();
    let (work, apps) = fleet(&server, |layer| layer).await;
    let first = tokio::spawn({
        let app = apps[0].clone();
        async move { send(&app).await }
    });
    work.running(1).await;
    let denied = send(&apps[1]).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers()["content-type"], "application/problem+json");
    assert_eq!(denied.headers()["retry-after"], "1");
    let names = denied.headers().keys().map(http::HeaderName::as_str);
    assert!(!names.into_iter().any(|name| name.contains("ratelimit")));
    assert!(
        text(denied)
            .await
            .contains("\"violated-policies\":[\"export\"]")
    );
    let grpc = Request::post("/export").header("content-type", "application/grpc+proto");
    let layer = ExclusiveLayer::new(&process(&server).await, "export");
    let handler = any(async || "a,b,c").layer(layer);
    let app = Router::new().route("/export", handler);
    let denied = app.oneshot(grpc.body(Body::empty()).expect("valid"));
    let denied = denied.await.expect("axum does not fail");
    assert_eq!(denied.status(), StatusCode::OK);
    assert_eq!(denied.headers()["content-type"], "application/grpc+proto");
    assert_eq!(denied.headers()["grpc-status"], "8");
    assert_eq!(denied.headers()["grpc-message"], "quota exceeded: export");
    assert_eq!(denied.headers()["retry-after"], "1");

    let degrade = async |denied: Denied| {
        assert_eq!(denied.rule.path(), "export");
        assert_eq!(denied.decision.retry_after(), Some(Duration::from_secs(30)));
        ([("retry-after", "7")], "it is being made")
    };
    let layer = ExclusiveLayer::new(&process(&server).await, "export").degrade(degrade);
    let response = send(&work.app(layer)).await;
    assert_eq!(response.headers()["retry-after"], "7");
    assert_eq!(text(response).await, "it is being made");
    let panics = async |_: Denied| -> &'static str { panic!("a callback of the user's") };
    let layer = ExclusiveLayer::new(&process(&server).await, "export").degrade(panics);
    let response = send(&work.app(layer)).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);

    work.end.notify_one();
    assert_eq!(text(first.await.expect("no panic")).await, "a,b,c");
}

/// Law: the permit is renewed for as long as the handler runs.
#[tokio::test]
async fn a_long_request_keeps_its_permit() {
    let server = Redis::start();
    let lease = Duration::from_millis(300);
    let (work, apps) = fleet(&server, |layer| layer.lease(lease)).await;
    let first = tokio::spawn({
        let app = apps[0].clone();
        async move { send(&app).await }
    });
    work.running(1).await;
    let began = Instant::now();
    while began.elapsed() < 4 * lease {
        assert_eq!(send(&apps[1]).await.status(), StatusCode::TOO_MANY_REQUESTS);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The client goes away.
    first.abort();
    out(&server, 0).await;
    work.running(0).await;
}

#[tokio::test]
async fn a_request_may_wait() {
    let server = Redis::start();
    let (work, apps) = fleet(&server, |layer| layer.wait(Duration::from_secs(5))).await;
    let sent: Vec<_> = (0..6)
        .map(|at| {
            let app = apps[at % 2].clone();
            tokio::spawn(async move { send(&app).await.status() })
        })
        .collect();
    for begun in 1..=6 {
        eventually("the next one begins", 2 * HICCUP, async || {
            work.begun.load(Ordering::SeqCst) == begun
        })
        .await;
        work.end.notify_one();
    }
    for task in sent {
        assert_eq!(task.await.expect("no panic"), StatusCode::OK);
    }
    assert_eq!(work.most.load(Ordering::SeqCst), 1);
}

/// Law: nobody waits for what cannot come.
#[tokio::test]
async fn without_permits_nobody_waits() {
    let server = Redis::start();
    let layer = |layer: ExclusiveLayer| layer.permits(0).wait(Duration::from_secs(5));
    let (_, apps) = fleet(&server, layer).await;
    let began = Instant::now();
    let response = send(&apps[0]).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(began.elapsed() < HICCUP, "{:?}", began.elapsed());
    assert_eq!(calls(&mut server.connection()), 1);
}

/// A lease whose end makes no sense is no reason to ask without a pause.
#[tokio::test]
async fn a_score_that_makes_no_sense() {
    let server = Redis::start();
    let (_, apps) = fleet(&server, |layer| layer.wait(Duration::from_secs(1))).await;
    let mut admin = server.connection();
    let mut add = redis::cmd("ZADD");
    add.arg("Exclusive:export").arg("+inf").arg("somebody");
    add.exec(&mut admin).expect("is added");
    let response = send(&apps[0]).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let calls = calls(&mut admin);
    assert!(calls <= 250, "{calls}");
}

fn calls(admin: &mut redis::Connection) -> u64 {
    let stats = redis::cmd("INFO").arg("commandstats").query(admin);
    let stats: redis::InfoDict = stats.expect("stats");
    let stats: String = stats.get("cmdstat_evalsha").expect("calls");
    let calls = stats.split(['=', ',']).nth(1).expect("a number");
    calls.parse().expect("a number")
}

/// As its docs say: a connection that is upgraded does not keep the permit.
#[tokio::test]
async fn an_upgrade_frees_its_permit() {
    let server = Redis::start();
    let redis = process(&server).await;
    let handler = get(|| async { StatusCode::SWITCHING_PROTOCOLS });
    let layer = ExclusiveLayer::new(&redis, "export");
    let app = Router::new().route("/export", handler.layer(layer));
    let response = send(&app).await;
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    out(&server, 0).await;
    drop(response);
}

#[tokio::test]
async fn keys_have_permits_of_their_own() {
    let server = Redis::start();
    let (work, apps) = fleet(&server, |layer| layer.key(Header::new("x-user"))).await;
    let of = |user: &'static str| {
        let mut request = request();
        let value = http::HeaderValue::from_static(user);
        request.headers_mut().insert("x-user", value);
        apps[0].clone().oneshot(request)
    };
    let (anna, ben) = (tokio::spawn(of("anna")), tokio::spawn(of("b:en")));
    work.running(2).await;
    let mut admin = server.connection();
    assert!(
        admin
            .exists::<_, bool>("Exclusive:export:anna")
            .expect("an answer")
    );
    assert!(
        admin
            .exists::<_, bool>("Exclusive:export:b%3Aen")
            .expect("an answer")
    );
    let again = of("anna").await.expect("axum does not fail");
    assert_eq!(again.status(), StatusCode::TOO_MANY_REQUESTS);
    work.end.notify_waiters();
    for task in [anna, ben] {
        let response = task.await.expect("no panic").expect("axum does not fail");
        assert_eq!(response.status(), StatusCode::OK);
    }
}

/// Law: the permit is kept until the body has ended or was dropped.
#[tokio::test]
async fn a_body_that_streams_keeps_the_permit() {
    let server = Redis::start();
    let redis = process(&server).await;
    let handler = get(|| async {
        let rows = futures_util::stream::iter(["a\n", "b\n", "c\n"]);
        Body::from_stream(rows.map(|row| Ok::<_, Infallible>(Bytes::from_static(row.as_bytes()))))
    });
    let layer = ExclusiveLayer::new(&redis, "export");
    let app = Router::new().route("/export", handler.layer(layer));
    let response = send(&app).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    assert!(body.frame().await.is_some());
    out(&server, 1).await;
    assert_eq!(send(&app).await.status(), StatusCode::TOO_MANY_REQUESTS);
    while body.frame().await.is_some() {}
    out(&server, 0).await;

    let response = send(&app).await;
    out(&server, 1).await;
    drop(response);
    out(&server, 0).await;
    drop(body);

    // A body whose end is known is not asked for it.
    let empty = get(|| async { StatusCode::NO_CONTENT });
    let layer = ExclusiveLayer::new(&redis, "export");
    let app = Router::new().route("/export", empty.layer(layer));
    let response = send(&app).await;
    out(&server, 0).await;
    drop(response);
}

/// Law: a handler that panics gives its permit back, and one that fails.
#[tokio::test]
async fn a_handler_that_fails_gives_back() {
    let server = Redis::start();
    let redis = process(&server).await;
    let panics = get(|| async { panic!("a bug of the user's") as &'static str });
    let layer = ExclusiveLayer::new(&redis, "export");
    let app = Router::new().route("/export", panics.layer(layer.clone()));
    for _ in 0..3 {
        let task = tokio::spawn({
            let app = app.clone();
            async move { send(&app).await.status() }
        });
        assert!(task.await.expect_err("a panic").is_panic());
        out(&server, 0).await;
    }

    let fails = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, _>(std::io::Error::other("broken"))
    });
    let service = layer.layer(fails);
    let error = service.oneshot(request()).await.expect_err("it fails");
    assert_eq!(error.to_string(), "broken");
    out(&server, 0).await;
    let layer = layer.on_error(async |failed: Failed| {
        assert!(failed.is_inner());
        StatusCode::BAD_GATEWAY
    });
    let service = layer.layer(fails);
    let response = service.oneshot(request()).await.expect("it is answered");
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    out(&server, 0).await;
}

/// Law: an outage is a 503, never a 429.
#[tokio::test]
async fn without_redis() {
    let mut server = Redis::start();
    let redis: Handle = at(&server.url).await.timeout(Duration::from_millis(100));
    let ok = || get(|| async { "ok" });
    let layer = ExclusiveLayer::new(&redis, "export");
    let app = |layer: ExclusiveLayer| Router::new().route("/export", ok().layer(layer));
    let default = app(layer.clone());
    let open = app(layer.clone().on_error(FailOpen));
    let told = app(layer.clone().on_error(async |failed: Failed| {
        assert!(failed.downcast_ref::<StoreError>().is_some());
        Recovery::Propagate
    }));
    let patient = app(layer.wait(Duration::from_millis(200)));
    assert_eq!(send(&default).await.status(), StatusCode::OK);
    server.signal("STOP");
    assert_eq!(
        send(&default).await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(
        send(&patient).await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    server.signal("CONT");
    out(&server, 0).await;
    server.kill();
    tokio::time::sleep(Duration::from_millis(100)).await;
    for app in [&default, &told, &patient] {
        let response = send(app).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
    }
    assert_eq!(send(&open).await.status(), StatusCode::OK);
    server.restart();
    eventually("it is back", 2 * HICCUP, async || {
        send(&default).await.status() == StatusCode::OK
    })
    .await;
}

/// Law: a missing key is neither a denial nor an admission.
#[tokio::test]
async fn without_a_key() {
    let server = Redis::start();
    let layer = ExclusiveLayer::new(&process(&server).await, "export");
    let user = Header::new("x-user");
    let app =
        |layer: ExclusiveLayer| Router::new().route("/export", get(|| async { "ok" }).layer(layer));
    for (layer, expected) in [(layer.clone().key(user), 400), (layer.key(PeerIp), 500)] {
        let default = app(layer.clone());
        let open = app(layer.clone().on_error(FailOpen));
        let proceed = app(layer.clone().on_error(async |_: Failed| Recovery::Proceed));
        for app in [default, open, proceed] {
            let response = send(&app).await;
            assert_eq!(response.status().as_u16(), expected);
            let content_type = &response.headers()["content-type"];
            assert_eq!(content_type, "application/problem+json");
        }
        let told = app(layer.on_error(async |failed: Failed| format!("{:?}", failed.kind())));
        let expected = if expected == 400 {
            "Key(Absent)"
        } else {
            "Key(Server)"
        };
        assert_eq!(text(send(&told).await).await, expected);
    }
}

/// While it waits, a request leaves the inner service to others.
#[tokio::test]
async fn a_waiting_request_holds_no_ready_instance() {
    let server = Redis::start();
    let user = Header::new("x-user");
    let mut service = ServiceBuilder::new()
        .layer(
            ExclusiveLayer::new(&process(&server).await, "export")
                .key(user)
                .wait(Duration::from_secs(20)),
        )
        .layer(ConcurrencyLimitLayer::new(1))
        .service(Strict::default());
    let of = |user: &'static str| {
        let mut request = request();
        let value = http::HeaderValue::from_static(user);
        request.headers_mut().insert("x-user", value);
        request
    };
    let held = service.ready().await.expect("ready").call(of("anna"));
    let held = held.await.expect("answers");
    let waits = tokio::spawn(service.ready().await.expect("ready").call(of("anna")));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let other = tokio::time::timeout(HICCUP, service.clone().oneshot(of("ben"))).await;
    let other = other.expect("the waiting request holds nothing");
    assert_eq!(other.expect("answers").status(), StatusCode::OK);
    assert!(!waits.is_finished());
    drop(held);
    let waited = waits.await.expect("no panic").expect("answers");
    assert_eq!(waited.status(), StatusCode::OK);
}

/// A key that holds something else is an error, and stays as it is.
#[tokio::test]
async fn a_key_of_somebody_else() {
    let server = Redis::start();
    let (_, apps) = fleet(&server, |layer| layer).await;
    let mut admin = server.connection();
    admin
        .set::<_, _, ()>("Exclusive:export", "text")
        .expect("is set");
    assert_eq!(
        send(&apps[0]).await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(
        admin.get::<_, String>("Exclusive:export").expect("text"),
        "text"
    );
}

/// Panics if it is called without having been polled ready. A clone starts unready.
#[derive(Debug, Default)]
struct Strict {
    ready: bool,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            calls: self.calls.clone(),
        }
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new(Body::from("a,b,c"))))
    }
}

/// Law: the instance that was polled ready is called, and only after the verdict.
#[tokio::test]
async fn only_the_instance_that_is_ready_is_called() {
    let server = Redis::start();
    let redis = process(&server).await;
    let strict = Strict::default();
    let calls = strict.calls.clone();
    let mut service = ExclusiveLayer::new(&redis, "export").layer(strict);
    let mut kept = Vec::new();
    for _ in 0..3 {
        let ready = service.ready().await.expect("gets ready");
        kept.push(ready.call(request()).await.expect("answers"));
    }
    let statuses: Vec<u16> = kept
        .iter()
        .map(|response| response.status().as_u16())
        .collect();
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    drop(kept);
    out(&server, 0).await;
    let ready = service.ready().await.expect("gets ready");
    drop(ready.call(request()));
    assert_eq!(
        calls.load(Ordering::SeqCst),
        1,
        "it was called before the verdict"
    );
}
