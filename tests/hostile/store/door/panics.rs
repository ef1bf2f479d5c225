//! Stores that panic within a door: the caller pays, and nobody else (law 13).

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// What becomes of a take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    /// Panics when it is asked.
    PanicsAtOnce,
    /// Panics when its future is polled.
    PanicsLater,
    Fails,
}

#[derive(Debug, Clone)]
struct Moody(Arc<Mutex<Mood>>);

impl Moody {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Mood::Well)))
    }

    fn set(&self, mood: Mood) {
        *self.0.lock().expect("no panic") = mood;
    }

    /// A store of this mood, a millisecond away.
    fn store(&self) -> Stub {
        let moody = self.clone();
        let memory = MemoryStore::new().tokio_clock();
        Stub::around(memory).take_fn(move |memory, take| {
            let mood = *moody.0.lock().expect("no panic");
            assert_ne!(mood, Mood::PanicsAtOnce, "on purpose");
            let answer = memory.take(take);
            StoreFuture::boxed(async move {
                sleep(millis(1)).await;
                assert_ne!(mood, Mood::PanicsLater, "on purpose");
                match mood {
                    Mood::Fails => Err(StoreError::new(StoreErrorKind::Unavailable, "down")),
                    _ => answer.await,
                }
            })
        })
    }
}

/// Asks in a task of its own; `None` if it panicked.
async fn asks(store: &Resilient<Stub>, take: &Take) -> Option<Result<Decision, StoreError>> {
    let (store, take) = (store.clone(), take.clone());
    let task = tokio::spawn(async move { store.take(&take).await });
    let answer = timeout(Duration::from_secs(5), task).await;
    answer.expect("law 6: it is answered").ok()
}

/// Panics while questions and probes are on their way take no place and hold no breaker open for
/// ever.
#[tokio::test(start_paused = true)]
async fn stores_that_panic() {
    for mood in [Mood::PanicsAtOnce, Mood::PanicsLater] {
        let moody = Moody::new();
        let store = Resilient::new(moody.store()).in_flight(8).failures(3);
        let store = store.probe_every(millis(10)).timeout(millis(50));
        let plain = take(&rule("plain", 1_000_000, HOUR), "x");
        for round in 0..5 {
            moody.set(mood);
            for _ in 0..30 {
                let _ = asks(&store, &plain).await;
                sleep(millis(3)).await;
            }
            moody.set(Mood::Well);
            sleep(Duration::from_secs(1)).await;
            assert_eq!(store.under_way(), 0, "law 9: {mood:?}, round {round}");
            for _ in 0..3 {
                // The first one may be a trial.
                let answer = asks(&store, &plain).await.expect("it does not panic");
                assert!(is_allowed(&answer), "law 13: {answer:?}, {mood:?}");
            }
            assert_eq!(store.condition().is_breaker_open, Some(false));
        }
    }
}

/// A trial of a half-open breaker that panics leaves the trial to somebody else.
#[tokio::test(start_paused = true)]
async fn a_trial_that_panics() {
    for mood in [Mood::PanicsAtOnce, Mood::PanicsLater] {
        let moody = Moody::new();
        let store = Resilient::new(moody.store()).failures(1);
        let store = store.probe_every(millis(10));
        let one = take(&rule("trial", 1_000, HOUR), "x");
        for round in 0..10 {
            moody.set(Mood::Fails);
            let failed = asks(&store, &one).await.expect("it does not panic");
            assert!(failed.is_err());
            // Probes panic, and then one is answered.
            moody.set(mood);
            sleep(millis(100)).await;
            moody.set(Mood::Well);
            sleep(millis(200)).await;
            moody.set(mood);
            assert!(asks(&store, &one).await.is_none(), "the trial panics");
            moody.set(Mood::Well);
            sleep(Duration::from_secs(1)).await;
            let answer = asks(&store, &one).await.expect("it does not panic");
            assert!(is_allowed(&answer), "law 13: {answer:?}, round {round}");
            assert_eq!(store.condition().is_breaker_open, Some(false));
        }
    }
}

/// With a fallback and a cache around it: a cached denial that is to be renewed by a
/// question that panics is void, and is no denial for ever.
#[tokio::test(start_paused = true)]
async fn a_renewal_of_a_denial_that_panics() {
    for mood in [Mood::PanicsAtOnce, Mood::PanicsLater] {
        let moody = Moody::new();
        let store = Resilient::new(moody.store()).processes(2);
        let window = Duration::from_secs(10);
        let one = take(&rule("renewed", 1, window), "x");
        assert!(decide(&store, &one).await.is_allowed());
        assert!(!decide(&store, &one).await.is_allowed());
        assert_eq!(decide(&store, &one).await.source(), Source::Cache);
        moody.set(mood);
        for _ in 0..20 {
            sleep(millis(20)).await;
            let _ = asks(&store, &one).await;
        }
        moody.set(Mood::Well);
        sleep(millis(150)).await;
        let denied = decide(&store, &one).await;
        assert!(!denied.is_allowed(), "law 1");
        assert_ne!(denied.source(), Source::Fallback);
        sleep(window).await;
        assert!(decide(&store, &one).await.is_allowed(), "law 14");
    }
}

/// Conditions, and capabilities of a door that is made, may panic: no request fails for it.
#[tokio::test]
async fn conditions_and_capabilities_that_panic() {
    let one = take(&rule("asked", 100, HOUR), "x");
    let panics = Stub::in_memory().condition_fn(|_| panic!("on purpose"));
    let panics = panics.capabilities_fn(|_| panic!("on purpose"));
    let made = catch_unwind(AssertUnwindSafe(|| {
        let store = Resilient::new(panics).processes(2);
        let _ = catch_unwind(AssertUnwindSafe(|| store.capabilities()));
        let _ = catch_unwind(AssertUnwindSafe(|| store.condition()));
        store
    }));
    let store = made.expect("what is wrong shows where it is asked for");
    for _ in 0..3 {
        let _ = catch_unwind(AssertUnwindSafe(|| store.condition()));
        assert!(decide(&store, &one).await.is_allowed(), "law 13");
        let clone = store.clone().failures(2);
        assert!(decide(&clone, &one).await.is_allowed(), "law 13");
    }
    assert!(reset(&store, &one).await);
}
