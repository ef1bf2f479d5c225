//! What a decision costs inside one process, next to `governor`'s keyed check in the same rounds.

mod support;

use std::convert::Infallible;
use std::future::ready;
use std::hint::black_box;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use futures_util::FutureExt;
use http::{Request, Response};
use support::{Table, contender, median, rounds};
use tidegate::{Headers, Key, MemoryStore, Quota, RateLimitLayer, Rule, SlidingLog, Store, Take};
use tower::{Layer, Service, service_fn};

const WINDOW: Duration = Duration::from_secs(10);

/// As a browser sends it and a server hands it on.
fn request() -> Request<Body> {
    let peer = SocketAddr::from(([127, 0, 0, 1], 4711));
    Request::get("/getId?page=1")
        .header("host", "api.example.com")
        .header(
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0",
        )
        .header("accept", "application/json")
        .header("accept-encoding", "gzip, br")
        .header("authorization", "Bearer 0123456789abcdef")
        .extension(ConnectInfo(peer))
        .body(Body::empty())
        .expect("a valid request")
}

fn response() -> Response<Body> {
    Response::builder()
        .header("content-type", "text/plain; charset=utf-8")
        .body(Body::from("1"))
        .expect("a valid response")
}

async fn no_op(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    black_box(request);
    Ok(response())
}

fn call<S>(service: &mut S, request: Request<Body>)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let answer = service.call(request).now_or_never().expect("ready at once");
    black_box(answer).expect("cannot fail");
}

fn layer(max: u64) -> RateLimitLayer {
    RateLimitLayer::new("getId", WINDOW, max).store(Arc::new(MemoryStore::new()))
}

fn main() {
    let governor = governor::RateLimiter::keyed(governor::Quota::per_second(
        NonZeroU32::new(1_000_000_000).expect("not zero"),
    ));
    let key = String::from("getId");
    let check = || assert!(governor.check_key(black_box(&key)).is_ok());

    let store = MemoryStore::new();
    let quota = Quota::new(Quota::LARGEST_MAX, WINDOW).expect("valid");
    let rule = Arc::new(Rule::new("getId", [quota]).expect("valid"));
    let take = || {
        let take = Take::new(Arc::clone(black_box(&rule)), Key::default());
        let answer = store.take(std::slice::from_ref(&take)).now_or_never();
        assert!(answer.expect("ready").expect("decides")[0].is_allowed());
    };
    let mut log = SlidingLog::default();
    let mut now = 0;
    let quotas = [quota];
    let pure = || {
        now += 1;
        assert!(log.take(now, black_box(&quotas), 1).is_allowed());
    };

    let mut bare = service_fn(no_op);
    let mut governed = service_fn(no_op);
    let mut all = layer(Quota::LARGEST_MAX).layer(service_fn(no_op));
    let mut silent = layer(Quota::LARGEST_MAX)
        .headers(Headers::None)
        .layer(service_fn(no_op));
    let mut denying = layer(0).layer(service_fn(no_op));
    let mut small = service_fn(|request: Request<Body>| {
        black_box(request);
        ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    });
    let mut small_governed = small;
    let mut small_limited = layer(Quota::LARGEST_MAX)
        .headers(Headers::None)
        .layer(small);

    let contenders = &mut [
        contender("`governor` keyed check", check),
        contender("sliding log alone", pure),
        contender("memory store take", take),
        contender("bare no-op service", || call(&mut bare, request())),
        contender("`governor` keyed check, then the bare service", || {
            assert!(governor.check_key(black_box(&key)).is_ok());
            call(&mut governed, request());
        }),
        contender("layer + memory take around it", || {
            call(&mut all, request())
        }),
        contender("the same without response fields", || {
            call(&mut silent, request())
        }),
        contender("the same, denied: a problem document", || {
            call(&mut denying, request())
        }),
        contender("empty request, empty response: bare", || {
            call(&mut small, Request::new(Body::empty()));
        }),
        contender("the same, `governor` keyed check first", || {
            assert!(governor.check_key(black_box(&key)).is_ok());
            call(&mut small_governed, Request::new(Body::empty()));
        }),
        contender("the same, layer without fields around it", || {
            call(&mut small_limited, Request::new(Body::empty()));
        }),
    ];
    let measured = rounds(contenders, 41, 40_000);

    let against =
        |at: usize, base: usize| median(measured.iter().map(|round| round[at] / round[base]));
    let mut table = Table::new(&[
        "in one process",
        "ns",
        "to `governor`",
        "to `governor` + bare",
    ]);
    for (at, contender) in contenders.iter().enumerate() {
        let nanos = median(measured.iter().map(|round| round[at]));
        table.row(&[
            contender.name.to_owned(),
            format!("{nanos:.0}"),
            format!("{:.2}", against(at, 0)),
            format!("{:.2}", against(at, if at < 8 { 4 } else { 9 })),
        ]);
    }
    table.print();
}
