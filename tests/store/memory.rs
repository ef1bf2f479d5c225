//! What only the memory store promises: a bound on its keys, and tokio's clock.

use crate::prelude::*;
use crate::take;

fn of(template: &Take, key: usize) -> Take {
    Take::new(template.rule().clone(), Key::from(&*key.to_string()))
}

/// A flood of keys can neither grow the store nor lift anybody's limit.
#[tokio::test]
async fn full_of_live_keys_it_refuses_new_ones() {
    let clock = ManualClock::default();
    let store: &dyn Store = &MemoryStore::with_max_keys(100).clock(clock.clone());
    let take = take("p", &[Quota::per_second(1)]);
    for key in 0..100 {
        assert!(ask(store, &of(&take, key)).await.is_allowed());
    }
    for key in 100..1_100 {
        let error = store.take(&of(&take, key)).await.expect_err("no room");
        assert_eq!(error.kind(), StoreErrorKind::Full);
    }
    let error = store.take(&of(&take, 1_100)).await.expect_err("no room");
    let text = "the in-memory store holds its 100 keys and all still count; a new key is refused";
    assert_eq!(error.to_string(), text);
    for key in 0..100 {
        let is_allowed = ask(store, &of(&take, key)).await.is_allowed();
        assert!(!is_allowed, "a limited key was dropped");
    }
    // Looking, and asking for what can never be, need no room.
    assert!(store.peek(&of(&take, 1_200)).await.is_ok());
    assert!(store.take(&of(&take, 1_200).with_cost(2)).await.is_ok());
    // Nor do requests that cost nothing, except for what has a cost of its own.
    assert!(store.take(&of(&take, 1_200).with_cost(0)).await.is_ok());
    let user = Subject::new("user", Everyone).limit(Quota::per_second(1));
    let own = Policy::new("own", Quota::per_minute(1)).with_cost(1);
    let joint = Rule::joint("joint", [user.limit(own)]).expect("a valid rule");
    let joint = Take::new(Arc::new(joint), Key::default()).with_cost(0);
    assert!(store.peek(&joint).await.is_ok());
    let error = store.take(&joint).await.expect_err("no room");
    assert_eq!(error.kind(), StoreErrorKind::Full);
}

/// One key that is whole again makes room for one, wherever it is.
#[tokio::test]
async fn keys_that_count_no_longer_make_room() {
    let clock = ManualClock::default();
    let store: &dyn Store = &MemoryStore::with_max_keys(50).clock(clock.clone());
    let take = take("p", &[Quota::per_second(1)]);
    for key in 0..50 {
        clock.set(key as u64 * 10);
        assert!(ask(store, &of(&take, key)).await.is_allowed());
    }
    for key in 0..50 {
        clock.set(1_000_000 + key as u64 * 10 - 1);
        assert!(store.take(&of(&take, 50 + key)).await.is_err());
        clock.set(1_000_000 + key as u64 * 10);
        assert!(ask(store, &of(&take, 50 + key)).await.is_allowed());
    }
}

/// Law 4: nothing is left behind.
#[tokio::test]
async fn idle_keys_are_dropped() {
    let clock = ManualClock::default();
    let memory = MemoryStore::new().clock(clock.clone());
    let store: &dyn Store = &memory;
    let second = take("p", &[Quota::per_second(3)]);
    let minute = take("q", &[Quota::per_second(3), Quota::per_minute(3)]);
    for key in 0..1_000 {
        ask(store, &of(&second, key)).await;
        ask(store, &of(&minute, key)).await;
    }
    assert_eq!(memory.len(), 2_000);
    clock.set(1_000_000);
    assert_eq!(memory.len(), 1_000);
    clock.set(59_999_999);
    assert_eq!(memory.len(), 1_000);
    clock.set(60_000_000);
    assert!(memory.is_empty());
}

/// A window that is made shorter makes room no earlier: a longer one may be back.
#[tokio::test]
async fn a_longer_window_is_remembered() {
    let clock = ManualClock::default();
    let store: &dyn Store = &MemoryStore::with_max_keys(1).clock(clock.clone());
    ask(store, &take("p", &[Quota::per_minute(5)])).await;
    ask(store, &take("p", &[Quota::per_second(5)])).await;
    let other = take("q", &[Quota::per_day(5)]);
    clock.set(59_999_999);
    assert!(store.take(&other).await.is_err());
    clock.set(60_000_000);
    assert!(store.take(&other).await.is_ok());
}

/// Law 1 under threads and a real clock, which is the very clock that this test reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn every_window_holds_under_threads() {
    every_window_holds(MemoryStore::new().tokio_clock(), SHORT_WINDOW).await;
}

/// The processor's counter is compared with the system's clock for a moment only, and then runs at
/// a pace of its own: some tens of microseconds off in a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn every_window_holds_by_the_counter() {
    every_window_holds(MemoryStore::new(), SHORT_WINDOW.mul_f64(0.998)).await;
}

const SHORT_WINDOW: Duration = Duration::from_millis(50);

/// The instants just before and after each grant bound when it was made, and what is certainly
/// inside one `window` never exceeds max.
async fn every_window_holds(store: MemoryStore, window: Duration) {
    const MAX: usize = 2_000;
    let quota = Quota::new(SHORT_WINDOW, MAX as u64).expect("valid");
    let store = std::sync::Arc::new(store);
    let take = take("p", &[quota]);
    let until = std::time::Instant::now() + Duration::from_millis(700);
    let tasks = (0..8).map(|_| {
        let (store, take) = (store.clone(), take.clone());
        tokio::spawn(async move {
            let mut grants = Vec::new();
            loop {
                let before = std::time::Instant::now();
                if before > until {
                    return grants;
                }
                if ask(&*store, &take).await.is_allowed() {
                    grants.push((before, std::time::Instant::now()));
                }
            }
        })
    });
    let mut grants = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        grants.extend(task.await.expect("no panic"));
    }
    grants.sort_unstable();
    assert!(grants.len() > 3 * MAX, "this test asked for too little");
    for (at, (first, _)) in grants.iter().enumerate().step_by(7) {
        let later = &grants[at..];
        let started_inside = later
            .iter()
            .take_while(|(before, _)| *before < *first + window);
        let inside = started_inside.filter(|(_, after)| *after < *first + window);
        assert!(inside.count() <= MAX);
    }
}

/// Tests of applications can pause and advance tokio's time.
#[tokio::test(start_paused = true)]
async fn the_clock_may_be_tokios() {
    let store: &dyn Store = &MemoryStore::new().tokio_clock();
    let take = take("p", &[Quota::per_minute(2)]);
    assert_eq!(allowed(store, &take, 5).await, 2);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(allowed(store, &take, 5).await, 2);
}
