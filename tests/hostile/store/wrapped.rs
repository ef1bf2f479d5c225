//! Wrappers and layers around each other keep what they promise.

use crate::prelude::*;
use crate::refusals::limited;

/// With everything around the store: bounded time, a fallback's share while the server hangs,
/// the server's decisions soon after it is back, and never more than both may admit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_around_a_server_that_hangs() {
    const MAX: u64 = 100;
    let (server, store) = near_within(TIMEOUT).await;
    let store = Resilient::new(store).processes(4).build();
    let one = take(&rule("hangs", MAX, HOUR), "");
    let mut allowed = 0;
    for _round in 0..3 {
        server.signal("STOP");
        let began = Instant::now();
        while began.elapsed() < millis(400) {
            let asked = Instant::now();
            let answers = join_all((0..10).map(|_| store.take(&one))).await;
            let took = asked.elapsed();
            assert!(took < TIMEOUT + millis(400), "{took:?}");
            for answer in answers {
                let answer = answer.expect("the fallback decides");
                assert_eq!(answer.source(), Source::Fallback);
                allowed += u64::from(answer.is_allowed());
            }
            sleep(millis(5)).await;
        }
        server.signal("CONT");
        let is_back = async || {
            let answer = decide(&store, &one).await;
            allowed += u64::from(answer.is_allowed());
            answer.source() == Source::Redis
        };
        within(Duration::from_secs(1), "the server decides", is_back).await;
    }
    for _ in 0..2 * MAX {
        allowed += u64::from(is_allowed(&store.take(&one).await));
    }
    assert!(allowed <= MAX + MAX / 4, "{allowed}: more than both");
    assert!(allowed >= MAX, "{allowed}: the server's own are granted");
}

/// How many of a bystander's 200 decisions are lost beside a forbidden key and a breaker.
async fn lost_beside_a_forbidden_key(callers: u64, pause: Duration) -> u32 {
    let server = Redis::start();
    let store = connect(&limited(&server), PATIENT).await;
    let store = Resilient::new(store).build();
    let (free, closed) = (rule("free", 1_000_000, HOUR), rule("closed", 1_000, HOUR));
    let _hammer = background((0..callers).map(|at| {
        let (store, closed) = (Arc::clone(&store), take(&closed, at));
        async move {
            loop {
                let _ = store.take(&closed).await;
                sleep(pause).await;
            }
        }
    }));
    let mut lost = 0;
    for _ in 0..200 {
        lost += u32::from(store.take(&take(&free, "x")).await.is_err());
        sleep(millis(5)).await;
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_key_and_a_breaker() {
    for (callers, pause) in [(1, 5), (4, 5), (16, 5), (16, 50)] {
        let lost = lost_beside_a_forbidden_key(callers, millis(pause)).await;
        assert_eq!(lost, 0, "law 13: {callers} callers, {pause} ms");
    }
}

/// Aborting callers and a fallback: every one of the bystander's decisions is the server's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_callers_and_a_fallback() {
    let (_server, _proxy, store) = far_within(millis(20), millis(500)).await;
    let store = Resilient::new(store).processes(2).build();
    let shared = rule("aborts", 1_000_000, HOUR);
    let _hasty = background((0..12).map(|at| {
        let (store, take) = (Arc::clone(&store), take(&shared, at));
        async move {
            loop {
                let _ = timeout(millis(8), store.take(&take)).await;
                sleep(millis(1)).await;
            }
        }
    }));
    for _ in 0..60 {
        let decision = decide(&store, &take(&shared, "bystander")).await;
        assert_eq!(decision.source(), Source::Redis);
    }
}
