//! A denied flood through the layer, with Redis behind `Resilient`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use kit::Redis;
use tidegate::{RateLimitLayer, Resilient};
use tower::ServiceExt;

use super::*;
use kit::store_on;

/// Scripts that the server has run.
fn calls(server: &Redis) -> u64 {
    let stats: redis::InfoDict = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.connection())
        .expect("statistics");
    let of = |command| {
        let line: Option<String> = stats.get(&format!("cmdstat_{command}"));
        let line = line.unwrap_or_default();
        let calls = line
            .strip_prefix("calls=")
            .and_then(|rest| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    };
    of("evalsha") + of("eval")
}

/// Counts how often the machine is so late that denials grow old before they are asked about again.
async fn stalls(server: &Redis, counted: Arc<AtomicU64>) {
    let mut connection = kit::async_connection(&server.url).await;
    tokio::spawn(async move {
        loop {
            let asked = Instant::now();
            tokio::time::sleep(MILLISECOND).await;
            let () = redis::cmd("PING")
                .query_async(&mut connection)
                .await
                .expect("an answer");
            counted.fetch_add(
                u64::from(asked.elapsed() > 20 * MILLISECOND),
                Ordering::Relaxed,
            );
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_flood_costs_redis_twenty_calls_a_second_at_most() {
    const CLIENTS: usize = 256;
    const SECONDS: u32 = 2;
    let server = Redis::start();
    let store = Resilient::new(store_on(&server).await).build();
    let layer = RateLimitLayer::new("getId", 600 * SECOND, 1).store(store);
    let app = Router::new().route("/", get(async || "1").layer(layer));
    let get = async |app: &Router| {
        let request = Request::get("/").body(Body::empty()).expect("valid");
        let response = app.clone().oneshot(request).await.expect("infallible");
        response.status()
    };
    assert_eq!(get(&app).await, StatusCode::OK);
    assert_eq!(get(&app).await, StatusCode::TOO_MANY_REQUESTS);

    let stalled = Arc::new(AtomicU64::new(0));
    stalls(&server, Arc::clone(&stalled)).await;
    let before = calls(&server);
    let denied = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let clients = (0..CLIENTS).map(|_| {
        let (app, denied) = (app.clone(), Arc::clone(&denied));
        tokio::spawn(async move {
            while began.elapsed() < SECONDS * SECOND {
                assert_eq!(get(&app).await, StatusCode::TOO_MANY_REQUESTS);
                denied.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no panic");
    }
    let seconds = began.elapsed().as_secs_f64();
    let (calls, denied) = (calls(&server) - before, denied.load(Ordering::Relaxed));
    let stalls = stalled.load(Ordering::Relaxed);
    println!("{denied} denied, {calls} calls in {seconds:.1} s, {stalls} stalls");
    // After a stall, callers ask at once, in as many calls as are in progress.
    assert!(
        calls as f64 <= 20.0 * seconds + 2.0 * stalls as f64,
        "{calls} calls in {seconds} s, {stalls} stalls"
    );
    assert!(denied > 50 * calls, "{denied} requests are no flood");
}

/// By the server's clock: whoever comes back when the cache said is allowed.
#[tokio::test]
async fn the_retry_after_is_true_on_redis() {
    let server = Redis::start();
    let redis = store_on(&server).await;
    let store = Resilient::bare(redis).denial_cache(Duration::MAX);
    let take = take_of(rule(quota(1, 200 * MILLISECOND)));
    assert!(ask(&store, &take).await.is_allowed());
    for pause in [1, 50, 100, 150, 190] {
        deny(&store, &take).await;
        tokio::time::sleep(pause * MILLISECOND).await;
        let told = ask(&store, &take).await;
        // A busy machine may sleep too long.
        if is_cached(&told) {
            tokio::time::sleep(told.retry_after().expect("denied")).await;
            assert!(ask(&store, &take).await.is_allowed());
        }
    }
}
