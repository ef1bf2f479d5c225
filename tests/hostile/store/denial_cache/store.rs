//! The cache alone, around stores in memory: odd stores, settings and clocks.

use crate::prelude::*;

const AGE: Duration = Duration::from_millis(100);

/// Takes until the store denies it, so that the cache has the denial.
async fn exhaust(store: &impl Store, take: &Take) -> Decision {
    loop {
        let answer = decide(store, take).await;
        if !answer.is_allowed() {
            return answer;
        }
    }
}

/// A denial as a store would tell it.
fn denied(retry_after: Duration) -> StoreFuture<Decision> {
    let (state, verdict) = (QuotaState::new(0, HOUR), Verdict::Denied { retry_after });
    let denial = Decision::new(verdict, Source::Other, 1, [state].into_iter());
    StoreFuture::ready(Ok(denial))
}

/// A rule that is dropped leaves its address to the next one: that one is asked about.
#[tokio::test]
async fn rules_that_come_and_go() {
    let store = Resilient::bare(MemoryStore::new()).denial_cache(AGE);
    for max in 1..500 {
        let take = take(&rule("short", max, HOUR), "x");
        let answer = store.take(&take).await;
        assert!(is_allowed(&answer), "law 14: the new quota is {max}");
        exhaust(&store, &take).await;
    }
}

/// More keys than there is room for, from many threads: everyone is told his own denial.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_hears_of_another_key() {
    let store = Resilient::bare(MemoryStore::new()).denial_cache_keys(64);
    let store = Arc::new(store.denial_cache(HOUR));
    let shared = rule("apart", 10_000, HOUR);
    // Each key has as many units left as its number.
    for key in 0..300_u64 {
        let ahead = take(&shared, key).with_cost(10_000 - key);
        assert!(is_allowed(&store.take(&ahead).await));
    }
    let each = (Arc::clone(&store), Arc::clone(&shared));
    let tasks = spawn_each(0..4, each, |task, (store, shared)| async move {
        let (mut random, mut cached) = (Random::new(task), 0);
        for _ in 0..20_000 {
            // Few of the keys are asked for often.
            let key = random.below(300).min(random.below(300));
            let take = take(&shared, key).with_cost(key + 1 + random.below(3));
            let told = decide(&store, &take).await;
            assert!(!told.is_allowed());
            assert_eq!(told.remaining(), key, "another key's denial");
            cached += u64::from(told.source() == Source::Cache);
        }
        cached
    });
    let cached: u64 = done(tasks).await.iter().sum();
    assert!(cached > 1_000, "{cached}");
}

/// Settings at their ends: no panic, no memory for keys that are not there, and right answers.
#[tokio::test]
async fn settings_at_their_ends() {
    for keys in [0, 1, 3, 7, 8, 9, 1_000_000] {
        for age in [Duration::ZERO, Duration::from_nanos(1), HOUR, Duration::MAX] {
            let store = Resilient::bare(MemoryStore::new()).denial_cache(AGE);
            let store = store.denial_cache(age).denial_cache_keys(keys);
            let ten_years = rule("long", 1, Quota::MAX_WINDOW);
            for key in 0..20 {
                let take = take(&ten_years, key);
                exhaust(&store, &take).await;
                let told = decide(&store, &take).await;
                assert!(!told.is_allowed());
                let is_on = keys > 0 && age >= HOUR;
                let is_told = told.source() == Source::Cache;
                assert_eq!(is_told, is_on, "{keys} keys, {age:?}");
                assert!(told.retry_after() <= Some(Quota::MAX_WINDOW));
            }
        }
    }
}

/// Denials at the ends of time, and answers that are none.
#[tokio::test(start_paused = true)]
async fn odd_answers_of_the_store() {
    for retry_after in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(1),
        Duration::from_micros(u64::MAX),
        Duration::MAX,
    ] {
        let inner = Stub::answering(MemoryStore::new(), move |_| Some(denied(retry_after)));
        let store = Resilient::bare(inner).denial_cache(Duration::MAX);
        let take = take(&rule("odd", 1, HOUR), "x");
        for _ in 0..5 {
            let told = decide(&store, &take).await;
            let wait = told.retry_after().expect("denied");
            let bound = retry_after.saturating_add(Duration::from_micros(1));
            assert!(wait <= bound, "{wait:?} of {retry_after:?}");
            advance(millis(1)).await;
        }
    }
}

/// A store that panics now and then: the cache goes on.
#[tokio::test]
async fn a_store_that_panics() {
    let asked = AtomicUsize::new(0);
    let inner = Stub::answering(MemoryStore::new(), move |_| {
        let asked = asked.fetch_add(1, Ordering::Relaxed);
        assert!(asked % 2 == 1, "a bug of this store");
        (asked % 4 == 3).then(|| StoreFuture::boxed(async { panic!("a bug of this store, later") }))
    });
    let store = Arc::new(Resilient::bare(inner).denial_cache(millis(1)));
    let take = take(&rule("panics", 0, HOUR), "x");
    let mut decisions = 0;
    for _ in 0..60 {
        let (store, take) = (Arc::clone(&store), take.clone());
        let answer = tokio::spawn(async move { store.take(&take).await }).await;
        decisions += u32::from(answer.is_ok_and(|answer| answer.is_ok()));
        sleep(millis(2)).await;
    }
    assert!(decisions >= 10, "{decisions}");
}

/// A clock that goes back or to its end: no panic, and no denial beyond its bound.
#[tokio::test]
async fn a_clock_at_its_ends() {
    let clock = ManualClock::default();
    let memory = MemoryStore::new().clock(clock.clone());
    let store = Resilient::bare(memory).denial_cache(AGE);
    let store = store.clock(clock.clone());
    let take = take(&rule("clock", 1, HOUR), "x");
    for now in [u64::MAX / 1_000, 1 << 50, 5, 0, 1 << 52, 77, u64::MAX, 1] {
        clock.set(now);
        for _ in 0..3 {
            decide(&store, &take).await;
        }
        reset(&store, &take).await;
        let answer = store.take(&take).await;
        assert!(is_allowed(&answer), "law 14, at {now}: {answer:?}");
    }
}
