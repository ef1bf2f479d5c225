//! `flush`: true only when nothing waits any more, never longer than its bound.

use super::*;

/// With nothing to wait for it is true at once, with any bound, also for layers of their own.
#[tokio::test]
async fn nothing_to_wait_for() {
    let limits = Limits::new([of("a", 5, &["2xx"])]);
    let layer = RateLimitLayer::new("b", SECOND, 5);
    for bound in [Duration::ZERO, millis(1), Duration::MAX] {
        assert!(limits.flush(bound).await);
        for layer in [&layer, &limits.layer("a"), &limits.layer("unknown")] {
            assert!(layer.flush(bound).await);
        }
    }
}

/// A bound of nothing says what is; the longest one waits for the answer.
#[tokio::test(start_paused = true)]
async fn the_shortest_and_the_longest() {
    let distant = Distant::new(MemoryStore::new());
    let limits = limits(of("a", 5, &["2xx"]), distant.clone());
    let layer = limits.layer("a");
    distant.set_ways(0, 700);
    pass(&wrap(&layer), 200, 1).await;
    assert!(!limits.flush(Duration::ZERO).await);
    assert!(!layer.flush(millis(300)).await);
    let began = tokio::time::Instant::now();
    let clone = layer.clone();
    let (one, two, three) = tokio::join!(
        limits.flush(Duration::MAX),
        layer.flush(Duration::MAX),
        clone.flush(Duration::from_secs(u64::MAX / 2)),
    );
    assert!(one && two && three);
    assert!(began.elapsed() <= millis(500), "{:?}", began.elapsed());
    assert!(limits.flush(Duration::ZERO).await);
    distant.set_ways(0, 0);
    assert_eq!(left(&limits, "a").await, 5);
}

/// Each of many that wait is told, and one that gives up takes nothing from the others.
#[tokio::test(start_paused = true)]
async fn many_wait() {
    let distant = Distant::new(MemoryStore::new());
    let (limits, service) = world(of("a", 5_000, &["2xx"]), distant.clone());
    for round in 0..5 {
        distant.set_ways(10, 200);
        pass(&service, 200, 1).await;
        let flushes = (0..40).map(|at| {
            let (limits, is_patient) = (limits.clone(), at % 2 == 0);
            async move {
                let bound = if is_patient { PATIENT } else { millis(at) };
                let flush = timeout(bound, limits.flush(Duration::MAX)).await;
                (is_patient, flush.unwrap_or(false))
            }
        });
        for (is_patient, is_done) in in_tasks(flushes).await {
            assert_eq!(is_patient, is_done, "{round}");
        }
    }
}

/// While requests run and run, a flush ends by its bound, and says true only if all of what came
/// before it was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_requests_run() {
    let (_server, _proxy, store) = kit::far(millis(10)).await;
    let (limits, service) = world(of("a", 1_000_000, &["2xx"]), store);
    let is_over = Arc::new(AtomicBool::new(false));
    let clients = (0..8).map(|_| {
        let (service, is_over) = (service.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                pass(&service, 200, 1).await;
                sent += 1;
            }
            sent
        })
    });
    let clients: Vec<_> = clients.collect();
    for bound in [0, 1, 20, 100, 300] {
        let began = Instant::now();
        limits.flush(millis(bound)).await;
        assert!(began.elapsed() < millis(bound) + PATIENT / 4);
        sleep(millis(20)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let sent = done(clients).await.iter().sum();
    flushed(&limits).await;
    assert_eq!(counted(&limits, "a"), (sent, sent, 0));
    assert_eq!(left(&limits, "a").await, 1_000_000);
}

/// It is about all layers of the limits, their clones, and layers that are gone.
#[tokio::test(start_paused = true)]
async fn layers_that_are_gone() {
    let distant = Distant::new(MemoryStore::new());
    let rules = ["a", "b"].map(|path| of(path, 50, &["2xx"]));
    let limits = Limits::new(rules).store(distant.clone());
    distant.set_ways(0, 400);
    for path in ["a", "b", "a"] {
        pass(&wrap(&limits.layer(path)), 200, 1).await;
    }
    assert!(!limits.flush(Duration::ZERO).await);
    flushed(&limits).await;
    distant.set_ways(0, 0);
    for path in ["a", "b"] {
        assert_eq!(left(&limits, path).await, 50, "{path}");
    }
    // The limits are gone, too: what was to be given back arrives.
    distant.set_ways(0, 100);
    pass(&wrap(&limits.layer("a")), 200, 1).await;
    let store = Arc::clone(limits.shared_store());
    drop(limits);
    sleep(SECOND).await;
    distant.set_ways(0, 0);
    assert_eq!(left_in(&*store, &of("a", 50, &[])).await, 50);
}

/// A store whose answers come no more: the flush says so in its time, and later ones as well, until
/// they are given up.
#[tokio::test(start_paused = true)]
async fn a_store_that_falls_silent() {
    let distant = Distant::new(MemoryStore::new());
    let (limits, service) = world(of("a", 50, &["2xx"]), distant.clone());
    distant.refunds_are(Fate::Silence);
    pass(&service, 200, 1).await;
    for _ in 0..5 {
        let began = tokio::time::Instant::now();
        assert!(!limits.flush(millis(100)).await);
        assert!(began.elapsed() <= millis(200));
    }
    distant.refunds_are(Fate::Answered);
    until(1, async || counted(&limits, "a").2).await;
    assert!(limits.flush(Duration::ZERO).await);
    pass(&service, 200, 1).await;
    flushed(&limits).await;
    assert_eq!(counted(&limits, "a"), (1, 1, 1));
}
