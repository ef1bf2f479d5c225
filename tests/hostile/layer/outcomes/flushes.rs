//! `flush`: true only when nothing waits any more, never longer than its bound.

use std::sync::OnceLock;

use tidegate::rule::{Lockout, Period};

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

/// It waits for callbacks of crossings and lock-outs, and for what may begin one; that of a layer for
/// those of its path. A callback that calls it waits for itself until the bound.
#[tokio::test(start_paused = true)]
async fn callbacks_that_run() {
    for (what, cost) in [
        ("panics", 10),
        ("settles", 1),
        ("fails", 1),
        ("is in shadow", 10),
    ] {
        let (own, told) = (Arc::<OnceLock<Limits>>::default(), Arc::default());
        let (at, counted) = (Arc::clone(&own), Arc::<AtomicUsize>::clone(&told));
        let callback = move || {
            let (at, told) = (Arc::clone(&at), Arc::clone(&counted));
            async move {
                sleep(millis(30)).await;
                let limits = at.get().expect("the limits");
                assert!(!limits.flush(millis(20)).await, "it runs");
                told.fetch_add(1, Ordering::Relaxed);
                assert_ne!(what, "panics");
            }
        };
        let rule = |path| {
            let month = Policy::calendar(Period::MONTH, 10);
            let rule = Rule::with_policies(path, [Quota::per_hour(100).into(), month]);
            let lockout = Lockout::after(1).hold([HOUR]).on(["401"]);
            let rule =
                rule.and_then(|it| it.with_settling(what == "settles").with_lockout(lockout));
            let rule = rule.expect("valid");
            if what == "is in shadow" {
                rule.into_shadow()
            } else {
                rule
            }
        };
        let memory = Arc::new(MemoryStore::new());
        let distant = kit::stub::Stub::delayed(memory, || (Duration::ZERO, millis(20)));
        let distant = distant.capabilities_fn(|inner| inner.capabilities());
        let limits = Limits::new(["a", "b"].map(rule)).store(distant);
        let of_lockouts = callback.clone();
        let limits = limits.on_crossing([1.0], move |_| callback());
        let limits = limits.on_lockout(move |_| of_lockouts());
        own.set(limits.clone()).expect("it is set once");
        let [layer, other] = ["a", "b"].map(|path| limits.layer(path));
        let admitted = limits.check("a", "x").cost(cost).await;
        match (what, admitted.expect("there is room").charge) {
            ("settles", Some(charge)) => drop(charge.settle(10).await),
            ("fails", Some(charge)) => charge.failed(),
            _ => {}
        }
        assert!(!limits.flush(millis(45)).await, "{what}");
        assert!(!layer.flush(Duration::ZERO).await, "{what}");
        assert!(other.flush(Duration::ZERO).await, "{what}");
        assert!(limits.flush(SECOND).await && layer.flush(Duration::ZERO).await);
        assert_eq!(told.load(Ordering::Relaxed), 1, "{what}");
    }
}
