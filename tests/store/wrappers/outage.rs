//! Real servers that hang, die, take no writes and come back.

use super::*;

async fn store(server: &Redis, timeout: Duration) -> Arc<dyn Store> {
    let store = RedisStore::connect(&server.url).await;
    let store = store.expect("a running server").timeout(timeout);
    let store = Resilient::new(store).fallback(Share::of_processes(4));
    store.build()
}

/// Asks until this is so.
async fn until(store: &dyn Store, is_so: impl Fn(&Decision) -> bool) -> Duration {
    let began = Instant::now();
    loop {
        let decision = ask(store, &take()).await;
        if is_so(&decision) {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENT, "still {decision:?}");
        sleep(MILLISECOND).await;
    }
}

fn is_from_redis(decision: &Decision) -> bool {
    decision.source() == Source::Redis
}

fn failed_as(kind: Kind) -> impl Fn(&Decision) -> bool {
    move |decision| {
        let failure = decision.failure();
        failure.is_some_and(|failure| failure.kind() == kind)
    }
}

/// Killed, and started anew without data, again and again.
#[tokio::test]
async fn a_server_that_dies_and_comes_back() {
    let mut server = Redis::start();
    let store = store(&server, SECOND).await;
    let mut slowest = Duration::ZERO;
    for _ in 0..3 {
        until(&*store, is_from_redis).await;
        server.kill();
        until(&*store, failed_as(Kind::Unavailable)).await;
        for _ in 0..200 {
            assert!(ask(&store, &take()).await.failure().is_some());
        }
        server.restart();
        slowest = slowest.max(until(&*store, is_from_redis).await);
    }
    println!("back after at most {slowest:?}");
}

/// Law 6: the first requests cost the time-out, and then nobody waits.
#[tokio::test]
async fn a_server_that_hangs() {
    let server = Redis::start();
    let store = store(&server, 50 * MILLISECOND).await;
    until(&*store, is_from_redis).await;
    server.signal("STOP");
    let open = |decision: &Decision| {
        let failure = decision.failure().map(StoreError::to_string);
        failure.is_some_and(|failure| failure.contains("breaker"))
    };
    until(&*store, open).await;
    let asked = take();
    let mut times = Vec::new();
    for _ in 0..2_000 {
        let began = Instant::now();
        assert!(open(&ask(&store, &asked).await));
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let (p99, slowest) = (times[1_980], times[1_999]);
    println!("hung and open: p99 {p99:?}, slowest {slowest:?}");
    assert!(p99 < 50 * MILLISECOND, "{p99:?}");
    server.signal("CONT");
    println!("back after {:?}", until(&*store, is_from_redis).await);
}

/// A refund finds the store that gave the receipt, while that is there.
#[tokio::test]
async fn receipts_of_both_are_told_apart() {
    let mut server = Redis::start();
    let store = store(&server, PATIENT).await;
    let take = take_from(40, 60 * SECOND);
    let there = ask(&store, &take).await;
    assert_eq!(there.source(), Source::Redis);
    let there = there.receipt().expect("charged");
    server.kill();
    sleep(300 * MILLISECOND).await;
    let here = ask(&store, &take).await;
    assert_eq!((here.source(), here.remaining()), (Source::Fallback, 9));
    let here = here.receipt().expect("charged");
    assert_eq!(refunds(&store, &take, &here).await, 1);
    assert_eq!(refunds(&store, &take, &here).await, 0);
    let is_right = store.refund(&take, &there).await.is_err();
    assert!(is_right, "gone with the server");
    let look = store.peek(&take).await.expect("a decision");
    assert_eq!((look.source(), look.remaining()), (Source::Fallback, 10));
}
