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
use tidegate::algorithm::Count;
use tidegate::{
    Algorithm, Headers, Key, Limits, MemoryStore, Quota, RateLimitLayer, Resilient, Rule, Store,
    Take,
};
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
    let quota = Quota::new(WINDOW, Quota::MAX_UNITS).expect("valid");
    let rule = Arc::new(Rule::new("getId", [quota]).expect("valid"));
    let take = || {
        let take = Take::new(Arc::clone(black_box(&rule)), Key::default());
        let answer = store.take(&take).now_or_never();
        assert!(answer.expect("ready").expect("decides").is_allowed());
    };
    let nothing = Quota::new(WINDOW, 0).expect("valid");
    let denied = Rule::new("getId", [nothing]).expect("valid");
    let denied = Take::new(Arc::new(denied), Key::from("2001:db8:7::/64"));
    let cache = Resilient::bare(MemoryStore::new()).denial_cache(Duration::MAX);
    let cached = || {
        let answer = cache.take(black_box(&denied)).poll_now();
        assert!(matches!(&answer, Some(Ok(decision)) if !decision.is_allowed()));
    };
    // So much that nothing is denied, and so slow that a bucket is never empty.
    let much = Quota::new(100 * WINDOW, 1_000_000_000).expect("valid");
    let stores = Algorithm::ALL.map(|algorithm| {
        let rule = Rule::new("getId", [much])
            .expect("valid")
            .with_algorithm(algorithm);
        (
            MemoryStore::new(),
            Take::new(Arc::new(rule), Key::default()),
        )
    });
    let take_by = |at: usize| {
        let (store, take) = &stores[at];
        let answer = store.take(black_box(take)).poll_now();
        assert!(matches!(&answer, Some(Ok(decision)) if decision.is_allowed()));
    };
    let quotas = [quota];
    let mut counts = Algorithm::ALL.map(|algorithm| (algorithm, Count::default()));
    let mut now = 0;
    let mut pure = || {
        now += 1;
        let (algorithm, count) = &mut counts[0];
        assert!(
            count
                .take(*algorithm, now, black_box(&quotas), 1)
                .is_allowed()
        );
    };

    let mut bare = service_fn(no_op);
    let mut governed = service_fn(no_op);
    let mut all = layer(Quota::MAX_UNITS).layer(service_fn(no_op));
    let mut silent = layer(Quota::MAX_UNITS)
        .headers(Headers::None)
        .layer(service_fn(no_op));
    let mut denying = layer(0).layer(service_fn(no_op));
    let mut small = service_fn(|request: Request<Body>| {
        black_box(request);
        ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    });
    let mut small_governed = small;
    let mut small_shown = layer(Quota::MAX_UNITS).layer(small);
    let rule = Rule::new("getId", [quota]).expect("valid");
    let limits = Limits::new([rule]).store(MemoryStore::new());
    let mut small_limited = layer(Quota::MAX_UNITS).headers(Headers::None).layer(small);

    let contenders = &mut [
        contender("`governor` keyed check", check),
        contender("memory take, sliding log", || take_by(0)),
        contender("memory take, sliding window", || take_by(1)),
        contender("memory take, GCRA", || take_by(2)),
        contender("memory take, fixed window", || take_by(3)),
        contender("the sliding log alone, without a store", &mut pure),
        contender("memory take with its question made and its future", take),
        contender("denial from a cache, a key of an address", cached),
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
        contender("the same, layer around it", || {
            call(&mut small_shown, Request::new(Body::empty()));
        }),
        contender("`limits.check`, without a service", || {
            let admitted = limits.check("getId", Key::default()).into_future();
            let admitted = admitted.now_or_never().expect("ready");
            assert!(admitted.is_ok_and(|it| it.decision.is_some()));
        }),
        contender("`limits.call` around an empty future", || {
            let call = limits.call("getId").run(async || ());
            assert!(call.now_or_never().expect("ready").is_ok());
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
            format!("{:.2}", against(at, if at < 13 { 9 } else { 14 })),
        ]);
    }
    table.print();
}
