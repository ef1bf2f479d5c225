//! When the store is asked again, and by how many.

use super::delayed::Delayed;
use super::*;

const MAX_AGE: Duration = millis(100);
/// When one caller asks again.
const DUE: Duration = millis(75);

/// A cache with a denial, and the store inside, whose takes from now on are held.
async fn denied(take: &Take) -> (Resilient<FlakyStore>, FlakyStore) {
    let (store, flaky) = around(Mode::Works, |it| it.denial_cache(MAX_AGE));
    deny(&store, take).await;
    flaky.asked();
    flaky.set(Mode::Holds);
    (store, flaky)
}

async fn callers(store: &Resilient<FlakyStore>, take: &Take, number: usize) -> usize {
    let answers = (0..number).map(|_| at_once(store, take));
    answers.filter(Option::is_some).count()
}

#[tokio::test(start_paused = true)]
async fn one_caller_asks_again_and_the_others_do_not_wait() {
    let take = scarce();
    let (store, flaky) = denied(&take).await;
    advance(DUE - MICROSECOND).await;
    assert_eq!(callers(&store, &take, 1_000).await, 1_000);
    assert_eq!(flaky.asked(), 0);
    advance(MICROSECOND).await;
    for _ in 0..5 {
        let asker = store.take(&take);
        assert_eq!(callers(&store, &take, 10_000).await, 10_000);
        assert_eq!(flaky.asked(), 1);
        flaky.let_go(1);
        assert_eq!(asker.await.expect("decided").source(), Source::Local);
        assert_eq!(callers(&store, &take, 10_000).await, 10_000);
        assert_eq!(flaky.asked(), 0);
        advance(DUE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_fails_to_ask_voids_the_denial() {
    let take = scarce();
    for ending in ["fails", "is dropped", "hangs", "is allowed"] {
        let (store, flaky) = denied(&take).await;
        advance(DUE).await;
        if ending == "fails" {
            flaky.set(Mode::HoldsAndFails(Kind::Timeout));
        }
        let mut asker = Some(store.take(&take));
        assert!(at_once(&store, &take).is_some(), "{ending}: not yet");
        match ending {
            "fails" => {
                flaky.let_go(1);
                let answer = asker.take().expect("asks").await;
                assert_eq!(answer.expect_err("fails").kind(), Kind::Timeout);
            }
            "is dropped" => drop(asker.take()),
            "hangs" => advance(MAX_AGE - DUE).await,
            _ => {
                flaky.memory().reset(&take).await.expect("reset");
                flaky.let_go(1);
                let answer = asker.take().expect("asks").await;
                assert!(answer.expect("decided").is_allowed());
            }
        }
        flaky.asked();
        for _ in 0..3 {
            assert!(at_once(&store, &take).is_none(), "{ending}: void");
        }
        assert_eq!(flaky.asked(), 3, "{ending}");
        flaky.set(Mode::Works);
        assert!(!deny(&store, &take).await.is_allowed());
        assert!(at_once(&store, &take).is_some(), "{ending}: again");
        drop(asker);
        assert!(at_once(&store, &take).is_some(), "{ending}: not its own");
    }
}

/// The denial that was asked last counts, in whatever order they are heard.
#[tokio::test(start_paused = true)]
async fn a_later_denial_replaces_an_earlier_one() {
    for (way_back, later_way_back) in [(2, 9), (9, 1)] {
        let delayed = Delayed::new(Duration::ZERO, Duration::ZERO);
        let store = Resilient::bare(delayed.store.clone()).denial_cache(Duration::MAX);
        let one = take_from(2, 600 * SECOND);
        let both = one.clone().with_cost(2);
        ask(&store, &one).await;
        advance(100 * SECOND).await;
        let receipt = ask(&store, &one).await.receipt().expect("charged");

        delayed.set(Duration::ZERO, way_back * SECOND);
        let asks = async { ask(&store, &both).await.retry_after() };
        let asks_later = async {
            sleep(SECOND).await;
            // Another process.
            let freed = delayed.memory.refund(&one, &receipt).await;
            assert_eq!(freed.expect("answers"), 1);
            delayed.set(Duration::ZERO, later_way_back * SECOND);
            ask(&store, &both).await.retry_after()
        };
        let (before, after) = tokio::join!(asks, asks_later);
        assert_eq!(before, Some(600 * SECOND));
        assert_eq!(after, Some(499 * SECOND));
        let told = ask(&store, &both).await;
        assert!(is_cached(&told));
        let since_heard = if later_way_back == 1 { 7 } else { 0 } * SECOND;
        assert_eq!(told.retry_after(), Some(499 * SECOND - since_heard));
    }
}

#[tokio::test(start_paused = true)]
async fn it_can_be_switched_off() {
    let flaky = FlakyStore::new(Mode::Works);
    let bare = || Resilient::bare(flaky.clone());
    let new = || Resilient::new(flaky.clone());
    let off: [Arc<dyn Store>; 6] = [
        bare().denial_cache(Duration::ZERO).build(),
        bare().denial_cache(MAX_AGE).denial_cache_keys(0).build(),
        new().denial_cache(None).build(),
        new().denial_cache(Duration::ZERO).build(),
        new().denial_cache_keys(0).build(),
        Arc::new(flaky.clone()),
    ];
    let take = scarce();
    deny(&flaky, &take).await;
    flaky.asked();
    for store in &off {
        for _ in 0..5 {
            assert_eq!(ask(store, &take).await.source(), Source::Local);
        }
        assert_eq!(flaky.asked(), 5);
        let nobody = Take::new(Arc::clone(take.rule()), Key::from("nobody"));
        let reset = store.reset(&nobody).await;
        reset.expect("an answer");
        flaky.asked();
    }
}

/// By default `Resilient` asks ten times a second, through a breaker that need not be closed.
#[tokio::test(start_paused = true)]
async fn resilient_asks_every_75_milliseconds() {
    let flaky = FlakyStore::new(Mode::Works);
    let store = Resilient::new(flaky.clone()).fallback(Share::of_processes(1));
    let store = store.build();
    let take = scarce();
    deny(&store, &take).await;
    flaky.asked();
    for _ in 0..1_000 {
        let answers = join_all((0..20).map(|_| ask(&store, &take))).await;
        assert!(answers.iter().all(|decision| !decision.is_allowed()));
        advance(10 * MILLISECOND).await;
    }
    let asked = flaky.asked();
    assert!((120..=135).contains(&asked), "{asked}");

    // One failure, and the fallback decides about the others.
    deny(&store, &take).await;
    flaky.set(Mode::FailsAtOnce(Kind::Timeout));
    assert!(is_cached(&ask(&store, &take).await));
    advance(DUE).await;
    assert_eq!(ask(&store, &take).await.source(), Source::Fallback);
    assert_eq!(ask(&store, &take).await.source(), Source::Fallback);
}
