//! Wrappers and layers around each other keep what they promise.

use crate::prelude::*;
use crate::refusals::limited;

/// Two layers of one path and one store count together, as do layers on two connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_that_share_a_count() {
    let (server, store) = near().await;
    let (store, other) = (Arc::new(store), connect(&server.url, PATIENT).await);
    let layer = || RateLimitLayer::new("shared", HOUR, 60);
    let apps = [
        layer().store(Arc::clone(&store)),
        layer().store(Arc::clone(&store) as Arc<dyn Store>),
        layer().store(other),
    ];
    let apps = apps.map(kit::app);
    let answers = join_all((0..200).map(|at| status(&apps[at % 3], "/"))).await;
    let allowed = answers.iter().filter(|status| status.is_success()).count();
    assert_eq!(allowed, 60, "law 1");
}

/// Layers in layers: each is asked once, and what the outer one denies costs the inner nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_in_layers() {
    let (_server, store) = near().await;
    let store = Arc::new(store);
    let handled = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&handled);
    let handler = get(async move || counted.fetch_add(1, Ordering::Relaxed).to_string());
    let layer = |path, max| RateLimitLayer::new(path, HOUR, max).store(Arc::clone(&store));
    let twice = handler.layer((layer("inner", 30), layer("inner", 30)));
    let app = Router::new().route("/", twice).layer(layer("outer", 40));
    let answers = join_all((0..100).map(|_| status(&app, "/"))).await;
    let allowed = answers.iter().filter(|status| status.is_success()).count() as u64;
    assert_eq!(allowed, handled.load(Ordering::Relaxed));
    for (path, max) in [("outer", 40), ("inner", 30)] {
        let take = hourly(Algorithm::SlidingLog, path, max, 1);
        assert_eq!(charged(&store, &take).await, max);
    }
    assert!(allowed <= 15, "each of them takes two: {allowed}");
}

/// Every permit of the bound comes back, however its questions end.
#[tokio::test]
async fn places_come_back() {
    let (server, store) = near_within(millis(100)).await;
    let bounded = Resilient::bare(store).in_flight(8);
    let one = take(&rule("places", 1_000_000, HOUR), "");
    server.signal("STOP");
    for round in 0..10 {
        let answers = join_all((0..20).map(|_| bounded.take(&one)));
        let answers = timeout(millis(20 + round * 20), answers).await;
        if let Ok(answers) = answers {
            assert!(answers.iter().all(Result::is_err), "it hangs");
            let shed = Some(StoreErrorKind::Overloaded);
            let shed = answers.iter().filter(|answer| kind(answer) == shed);
            assert_eq!(shed.count(), 12);
        }
        assert_eq!(bounded.under_way(), 0);
    }
    server.signal("CONT");
    sleep(millis(200)).await;
    let answers = join_all((0..20).map(|_| bounded.take(&one))).await;
    let told = answers.iter().filter(|answer| is_allowed(answer)).count();
    assert_eq!(told, 8);
}

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
