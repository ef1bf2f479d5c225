//! One request finds out whether the store works again, and nothing it does leaves the breaker
//! stuck.

use tokio::time::Instant;

use super::breaker::open;
use super::*;

/// A breaker whose next request is the one that finds out.
async fn half_open(mode: Mode) -> (Resilient<FlakyStore>, FlakyStore) {
    let (store, flaky) = open(mode).await;
    sleep(130 * MILLISECOND).await;
    assert_eq!((flaky.looked(), flaky.asked()), (1, 0));
    (store, flaky)
}

#[tokio::test(start_paused = true)]
async fn one_goes_through_and_closes_it() {
    let (store, flaky) = half_open(Mode::Holds).await;
    let one = take();
    let mut trial = Box::pin(store.take(&one));
    assert!(poll_immediate(&mut trial).await.is_none());
    for _ in 0..10 {
        let answer = timeout(SECOND, kind(&store)).await;
        assert_eq!(answer.expect("nobody waits"), Kind::Unavailable);
        assert!(at_once(&store, &take()).is_some_and(|answer| answer.is_err()));
    }
    flaky.let_go(11);
    assert!(trial.await.is_ok());
    assert_eq!(allowed(&store, &take(), 10).await, 10);
    assert_eq!(flaky.asked(), 11);
}

/// A look is answered where nothing can be written, so it closes nothing.
#[tokio::test(start_paused = true)]
async fn one_that_fails_opens_it_again() {
    for kind_of in [Kind::ReadOnly, Kind::OutOfMemory] {
        let (store, flaky) = half_open(Mode::Writes(kind_of)).await;
        let began = Instant::now();
        while began.elapsed() < 10 * SECOND {
            let took = Instant::now();
            let _ = kind(&store).await;
            assert_eq!(took.elapsed(), std::time::Duration::ZERO);
            sleep(MILLISECOND).await;
        }
        let (asked, looked) = (flaky.asked(), flaky.looked());
        assert!((80..=100).contains(&asked), "{asked}");
        assert!(looked.abs_diff(asked) <= 1, "{looked} {asked}");
        flaky.set(Mode::Works);
        sleep(130 * MILLISECOND).await;
        assert!(ask(&store, &take()).await.is_allowed());
        assert!(ask(&store, &take()).await.is_allowed());
    }
}

/// A request that costs nothing is no look: where it is decided, the store works.
#[tokio::test(start_paused = true)]
async fn one_that_costs_nothing_closes_it() {
    let (store, _flaky) = half_open(Mode::Works).await;
    assert_eq!(store.condition().is_breaker_open, Some(true));
    assert!(ask(&store, &take().with_cost(0)).await.is_allowed());
    assert_eq!(store.condition().is_breaker_open, Some(false));
}

/// Dropped before it is polled, while it waits, and after somebody looked whether it is answered.
#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_makes_room_for_another() {
    let (store, flaky) = half_open(Mode::Holds).await;
    let one = take();
    for polls in 0..4 {
        let mut trial = Box::pin(store.take(&one));
        for _ in 0..polls {
            assert!(poll_immediate(&mut trial).await.is_none());
        }
        assert_eq!((flaky.asked(), flaky.under_way()), (1, 1));
        assert_eq!(kind(&store).await, Kind::Unavailable, "one at a time");
        drop(trial);
        assert_eq!(flaky.under_way(), 0);
    }
    assert!(at_once(&store, &one).is_none(), "it is on its way");
    assert_eq!((flaky.asked(), flaky.under_way()), (1, 0));
    flaky.let_go(1);
    assert!(ask(&store, &take()).await.is_allowed(), "it is free");
    assert_eq!(store.condition().is_breaker_open, Some(false));
    flaky.set(Mode::Works);
    assert!(ask(&store, &take()).await.is_allowed(), "and closed by now");
}

/// A question of another generation that is dropped frees no trial but its own.
#[tokio::test(start_paused = true)]
async fn an_earlier_one_that_is_dropped_changes_nothing() {
    let (store, flaky) = around(Mode::Holds, |it| it.failures(1));
    let one = take();
    let early = store.take(&one);
    flaky.set(Mode::Fails(Kind::Timeout));
    assert_eq!(kind(&store).await, Kind::Timeout);
    flaky.set(Mode::Holds);
    sleep(130 * MILLISECOND).await;
    let trial = store.take(&one);
    drop(early);
    assert_eq!(kind(&store).await, Kind::Unavailable);
    drop(trial);
    assert!(at_once(&store, &take()).is_none(), "it goes through");
}

/// A future that somebody keeps and does not poll any more, or never did.
#[tokio::test(start_paused = true)]
async fn one_that_is_left_lying_about_is_passed_over() {
    for polls in 0..2 {
        let (store, flaky) = half_open(Mode::Holds).await;
        let one = take();
        let mut kept = Box::pin(store.take(&one));
        for _ in 0..polls {
            assert!(poll_immediate(&mut kept).await.is_none());
        }
        flaky.set(Mode::Works);
        assert_eq!(kind(&store).await, Kind::Unavailable);
        sleep(SECOND).await;
        assert!(ask(&store, &take()).await.is_allowed());
        flaky.let_go(1);
        assert!(kept.await.is_ok(), "too late to say anything");
    }
}

/// Looks and refunds say nothing about what takes will find, and keep nobody out for longer than
/// they last.
#[tokio::test(start_paused = true)]
async fn looks_and_refunds_do_not_close_it() {
    let (store, flaky) = half_open(Mode::Writes(Kind::ReadOnly)).await;
    assert!(store.peek(&take()).await.is_ok());
    assert!(store.peek(&take()).await.is_ok());
    flaky.set(Mode::Works);
    let receipt = Receipt::new(1, 1, 1);
    assert_eq!(refunds(&store, &take(), &receipt).await, 0);
    flaky.set(Mode::Writes(Kind::ReadOnly));
    assert_eq!(kind(&store).await, Kind::ReadOnly, "one is enough");
    assert_eq!(kind(&store).await, Kind::Unavailable, "open again");
}

/// However many ask at once, on however many threads: one gets through.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_of_500_goes_through() {
    let (store, flaky) = open(Mode::Holds).await;
    // While it is open, an error is at hand. Half-open, this question goes through, and is dropped.
    while at_once(&store, &take()).is_some() {
        sleep(5 * MILLISECOND).await;
    }
    assert_eq!(flaky.asked(), 1);
    let began = std::time::Instant::now();
    let refused = Arc::new(AtomicUsize::new(0));
    let each = (store.clone(), Arc::clone(&refused));
    let tasks = spawn_each(0..500, each, |_, (store, refused)| async move {
        let answer = store.take(&take()).await;
        if let Err(error) = &answer {
            assert_eq!(error.kind(), Kind::Unavailable);
            refused.fetch_add(1, Ordering::Relaxed);
        }
        answer.is_ok()
    });
    // On a machine that is busy for longer, another one gets its turn after a second, and so on.
    let most = |began: std::time::Instant| 1 + began.elapsed().as_secs() as usize;
    while refused.load(Ordering::Relaxed) < 500 - most(began) {
        assert!(began.elapsed() < 20 * SECOND);
        sleep(MILLISECOND).await;
    }
    let most = most(began);
    flaky.let_go(most);
    let decided = done(tasks).await.into_iter().filter(|is_ok| *is_ok).count();
    assert!((1..=most).contains(&decided), "{decided} of {most}");
    assert_eq!(flaky.asked(), decided);
    flaky.set(Mode::Works);
    assert!(ask(&store, &take()).await.is_allowed(), "it is closed");
}
