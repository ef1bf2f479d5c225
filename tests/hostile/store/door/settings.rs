//! Settings at their ends, and what a door says it can do through whatever is put around it.

use tidegate::store::{Capabilities, Condition};
use tokio::time::Instant;

use crate::prelude::*;

/// Zero and without an end, each alone: a part that is off is off, and nothing hangs or panics.
#[tokio::test(start_paused = true)]
async fn settings_at_their_ends() {
    let memory = || Distant::new(MemoryStore::new().tokio_clock());
    let roomy = take(&rule("roomy", 1_000, HOUR), "x");

    // At least one.
    let inner = memory();
    let store = Resilient::new(inner.clone()).failures(0);
    let store = store.probe_every(Duration::ZERO);
    assert!(is_allowed(&store.take(&roomy).await));
    assert_eq!(store.condition().is_breaker_open, Some(false));
    inner.takes_are(Fate::QuestionLost);
    assert!(store.take(&roomy).await.is_err());
    assert_eq!(store.condition().is_breaker_open, Some(true));
    inner.takes_are(Fate::Answered);
    sleep(millis(50)).await;
    assert!(is_allowed(&store.take(&roomy).await));
    assert_eq!(store.condition().is_breaker_open, Some(false));

    let inner = memory();
    inner.takes_are(Fate::QuestionLost);
    let store = Resilient::new(inner).processes(1).fallback_keys(0);
    let full = store.take(&roomy).await;
    assert_eq!(kind(&full), Some(StoreErrorKind::Full));

    // What is there immediately needs no time; what is not has none.
    let inner = memory();
    let store = Resilient::new(inner.clone()).timeout(Duration::ZERO);
    assert!(is_allowed(&store.take(&roomy).await));
    inner.set_ways(1, 1);
    let began = Instant::now();
    let late = store.take(&roomy).await;
    assert_eq!(kind(&late), Some(StoreErrorKind::Timeout));
    assert!(began.elapsed() <= millis(2), "law 6: {:?}", began.elapsed());
    assert_eq!(store.capabilities().timeout, Some(Duration::ZERO));

    for endless in [Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
        let inner = memory().ways(43_200_000, 43_200_000);
        let store = Resilient::new(inner).timeout(endless);
        assert_eq!(store.capabilities().timeout, Some(endless));
        assert!(is_allowed(&store.take(&roomy).await), "a day later");
        let nested = Resilient::new(store).timeout(endless).denial_cache(endless);
        assert!(is_allowed(&nested.take(&roomy).await), "a day later");
        let nested = nested.probe_every(endless).failures(u32::MAX).processes(1);
        let nested = nested.in_flight(usize::MAX).fallback_keys(usize::MAX);
        let nested = nested.denial_cache_keys(usize::MAX);
        assert!(is_allowed(&nested.take(&roomy).await), "a day later");
    }
}

/// What a door can do is the same value through an `Arc`, another door and a wrapper, before and
/// after the first question; the earlier time-out counts, and a setter of a clone is the clone's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capabilities_through_whatever_is_around() {
    let server = Redis::start();
    let raw: RedisStore = connect(&server.url, millis(300)).await;
    let id = raw.capabilities().server;
    assert!(id.is_some());
    let other = Redis::start();
    let elsewhere = connect(&other.url, millis(300)).await;
    assert_ne!(elsewhere.capabilities().server, id);

    let door = Resilient::new(raw.clone()).timeout(millis(200));
    let said = door.capabilities();
    assert_eq!(said.timeout, Some(millis(200)));
    assert_eq!(said.server, id);
    assert!(!said.has_fallback);
    let later = Resilient::new(raw.clone()).timeout(millis(400));
    let told = later.capabilities().timeout;
    assert_eq!(told, Some(millis(300)), "the earlier");

    let with = door.clone().processes(3);
    assert!(with.capabilities().has_fallback);
    let one = take(&rule("said", 100, HOUR), "x");
    assert!(is_allowed(&with.take(&one).await));
    assert!(with.capabilities().has_fallback && !door.capabilities().has_fallback);
    assert_eq!(door.capabilities(), said);
    let without = with.clone().fallback(None);
    assert!(!without.capabilities().has_fallback);

    let inside: Arc<dyn Store> = with.clone().build();
    let around: Vec<Arc<dyn Store>> = vec![
        Arc::new(Arc::clone(&inside)),
        Resilient::bare(Arc::clone(&inside)).build(),
        Arc::new(Stub::around(Arc::clone(&inside)).capabilities_fn(|inner| inner.capabilities())),
        Resilient::new(Resilient::bare(Arc::new(with.clone()))).build(),
    ];
    for (at, store) in around.iter().enumerate() {
        let said: Capabilities = store.capabilities();
        assert!(said.has_fallback, "{at}: {said:?}");
        assert_eq!((said.server, said.timeout), (id, Some(millis(200))), "{at}");
    }
    assert_eq!(charged(&raw, &one).await, 1);
}

/// An open breaker is seen through whatever is around it.
#[tokio::test(start_paused = true)]
async fn a_condition_through_whatever_is_around() {
    let inner = Distant::new(MemoryStore::new().tokio_clock());
    let bare = Resilient::bare(inner.clone());
    assert_eq!(bare.condition().is_breaker_open, None);
    let door = bare.failures(1).probe_every(Duration::MAX);
    let stub = Stub::around(Arc::new(door.clone()));
    let around: Vec<Arc<dyn Store>> = vec![
        Arc::new(Arc::new(door.clone())),
        Resilient::bare(door.clone()).build(),
        Arc::new(stub.condition_fn(|inner| inner.condition())),
    ];
    let check = |is_open: bool| {
        for (at, store) in around.iter().enumerate() {
            let condition: Condition = store.condition();
            assert_eq!(condition.is_breaker_open, Some(is_open), "{at}");
        }
    };
    check(false);
    inner.takes_are(Fate::QuestionLost);
    let one = take(&rule("condition", 100, HOUR), "x");
    assert!(door.take(&one).await.is_err());
    check(true);
}
