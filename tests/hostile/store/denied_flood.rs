//! A denied flood through the layer, with Redis behind `Resilient`.

use kit::{http, store_on};

use crate::prelude::*;

/// Counts how often the machine is so late that denials grow old before they are asked about again.
async fn stalls(server: &Redis, counted: Arc<AtomicU64>) {
    let mut connection = kit::async_connection(&server.url).await;
    tokio::spawn(async move {
        loop {
            let asked = Instant::now();
            sleep(millis(1)).await;
            let pong = redis::cmd("PING").query_async::<()>(&mut connection).await;
            pong.expect("an answer");
            let is_late = asked.elapsed() > millis(20);
            counted.fetch_add(u64::from(is_late), Ordering::Relaxed);
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_flood_costs_redis_twenty_calls_a_second_at_most() {
    const CLIENTS: u64 = 256;
    const SECONDS: u32 = 2;
    let server = Redis::start();
    let store = Resilient::new(store_on(&server).await).build();
    let layer = RateLimitLayer::new("getId", 600 * SECOND, 1).store(store);
    let app = app(layer);
    assert_eq!(http::status(&app, "/").await, 200);
    assert_eq!(http::status(&app, "/").await, 429);

    let stalled = Arc::new(AtomicU64::new(0));
    stalls(&server, Arc::clone(&stalled)).await;
    let before = server.script_calls();
    let began = Instant::now();
    let denied = crowd(CLIENTS, |_| {
        let app = app.clone();
        async move {
            let mut denied = 0;
            while began.elapsed() < SECONDS * SECOND {
                assert_eq!(http::status(&app, "/").await, 429);
                denied += 1;
                tokio::task::yield_now().await;
            }
            denied
        }
    });
    let denied: u64 = denied.await.into_iter().sum();
    let seconds = began.elapsed().as_secs_f64();
    let calls = server.script_calls() - before;
    let stalls = stalled.load(Ordering::Relaxed);
    println!("{denied} denied, {calls} calls in {seconds:.1} s, {stalls} stalls");
    // After a stall, callers ask at once, in as many calls as are in progress.
    let is_right = calls as f64 <= 20.0 * seconds + 2.0 * stalls as f64;
    assert!(is_right, "{calls} calls in {seconds} s, {stalls} stalls");
    assert!(denied > 50 * calls, "{denied} requests are no flood");
}
