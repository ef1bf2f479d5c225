//! One number: nanoseconds of an allowed request through the layer over a memory store.
//! `benches/counters.sh` compares a build that counts and publishes with one that does neither. With
//! COUNTED=1 it prints nothing, and valgrind counts the instructions of 20,000 requests.

mod support;

use std::convert::Infallible;
use std::future::ready;
use std::hint::black_box;
use std::time::{Duration, Instant};

use axum::body::Body;
use futures_util::FutureExt;
use http::{Request, Response};
use metrics_exporter_prometheus::PrometheusBuilder;
use support::counted;
use tidegate::{Limits, Quota, Rule};
use tower::{Layer, Service, service_fn};

const REQUESTS: u32 = 20_000;
const ROUNDS: usize = 200;

fn main() {
    let quota = Quota::new(Duration::from_secs(10), Quota::MAX_UNITS).expect("valid");
    let rule = Rule::new("getId", [quota]).expect("valid");
    let limits = Limits::new([rule]);
    if !cfg!(tidegate_uncounted) {
        let recorder = PrometheusBuilder::new().install_recorder();
        recorder.expect("the first one");
        limits.publish_metrics_every_second();
    }
    let mut service = limits
        .layer("getId")
        .layer(service_fn(|request: Request<Body>| {
            black_box(request);
            ready(Ok::<_, Infallible>(Response::new(Body::from("1"))))
        }));
    let mut round = || {
        let begin = Instant::now();
        for _ in 0..REQUESTS {
            let request = Request::get("/getId?page=1").body(Body::empty());
            let answer = service.call(request.expect("valid")).now_or_never();
            black_box(answer.expect("ready at once")).expect("cannot fail");
        }
        begin.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
    };
    if std::env::var_os("COUNTED").is_some() {
        round();
        return counted(&mut || _ = black_box(round()));
    }
    let mut times: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
    times.sort_by(f64::total_cmp);
    // The quickest rounds are those that neighbours disturbed least.
    println!("{:.1}", times[times.len() / 10]);
}
