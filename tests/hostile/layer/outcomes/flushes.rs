//! `flush`: true only when nothing waits any more, never longer than its bound.

use super::*;

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
