//! What a cached denial says, and which takes it answers.

use super::delayed::Delayed;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_denial_is_told_until_it_is_over() {
    let (store, flaky) = around(Mode::Works, |it| it.denial_cache(Duration::MAX));
    let take = take_from(3, 10 * SECOND).with_cost(2);
    let denied = deny(&store, &take).await;
    assert_eq!((denied.source(), flaky.asked()), (Source::Local, 2));
    for _ in 0..99 {
        tokio::time::advance(SECOND / 10 - 777 * MICROSECOND).await;
        let told = at_once(&store, &take).expect("at once").expect("decided");
        assert!(is_cached(&told) && !told.is_allowed());
        assert_eq!(told.remaining(), 1);
        let own = ask(flaky.memory(), &take).await;
        assert_eq!(told.retry_after(), own.retry_after());
        assert_eq!(told.reset_after(), own.reset_after());
        assert_eq!(told.receipt(), None);
    }
    assert_eq!(flaky.asked(), 0);
    tokio::time::advance(SECOND / 10 + 99 * 777 * MICROSECOND).await;
    assert!(ask(&store, &take).await.is_allowed());
    assert_eq!(flaky.asked(), 1);
}

/// The retry-after ends a way back later than the server's time, and the denial a way there
/// earlier: nobody who comes when told is denied, and nobody who comes in time is.
#[tokio::test(start_paused = true)]
async fn the_round_trip_is_on_the_callers_side() {
    let (there, back) = (30 * MILLISECOND, 20 * MILLISECOND);
    let delayed = Delayed::new(there, back);
    let store = Resilient::bare(delayed.store.clone()).denial_cache(Duration::MAX);
    let take = take_from(1, 10 * SECOND);
    deny(&store, &take).await;
    let mut cached = 0;
    loop {
        tokio::time::advance(7 * MILLISECOND).await;
        let Some(told) = at_once(&store, &take) else {
            break;
        };
        let told = told.expect("decided").retry_after().expect("denied");
        let own = ask(&*delayed.memory, &take).await.retry_after();
        assert_eq!(told, own.expect("denied") + back);
        cached += 1;
    }
    let left = ask(&*delayed.memory, &take).await.retry_after();
    let left = left.expect("it ends before the server's time");
    let is_right = left >= there && left <= there + 20 * MILLISECOND;
    assert!(is_right, "{left:?}");
    assert!(cached > 1_000);
}

#[tokio::test(start_paused = true)]
async fn only_the_same_question_is_answered() {
    let (store, flaky) = around(Mode::Works, |it| it.denial_cache(millis(100)));
    let [rule, changed] = [10, 9].map(|max| Arc::new(rule(quota(max, 600 * SECOND))));
    let of = |key: &str| Take::new(Arc::clone(&rule), Key::from(key));
    let take = of("alice").with_cost(4);
    deny(&store, &take).await;
    assert!(is_cached(&ask(&store, &take).await));
    flaky.asked();
    flaky.looked();

    let others = [
        (of("alice").with_cost(5), 0),
        (of("alice").with_cost(2), 1),
        (of("bob").with_cost(4), 1),
        (Take::new(changed, take.key().clone()).with_cost(4), 0),
        (take.clone().repeat(), 0),
    ];
    for (other, allowed) in others {
        let decision = ask(&store, &other).await;
        assert_eq!(usize::from(decision.is_allowed()), allowed, "{other:?}");
        assert_eq!((decision.source(), flaky.asked()), (Source::Local, 1));
    }
    let look = ask(&store, &take.clone().looking()).await;
    assert!(look.is_allowed());
    assert_eq!((look.source(), flaky.looked()), (Source::Local, 1));
    // All these have left the denial as it is.
    assert!(is_cached(&ask(&store, &take).await));
}

#[tokio::test(start_paused = true)]
async fn never_is_told_again() {
    let (store, flaky) = around(Mode::Works, |it| it.denial_cache(Duration::MAX));
    let take = take_from(3, SECOND).with_cost(4);
    let never = deny(&store, &take).await;
    tokio::time::advance(3_600 * SECOND).await;
    let again = ask(&store, &take).await;
    let seen = (again.verdict(), again.retry_after());
    assert_eq!(seen, (never.verdict(), None));
    assert!(is_cached(&again));
    assert_eq!(flaky.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn several_quotas() {
    let store = Resilient::bare(FlakyStore::new(Mode::Works)).denial_cache(Duration::MAX);
    let quotas = [quota(2, 10 * SECOND), quota(9, 60 * SECOND)];
    let take = take_of(Rule::new("p", quotas).expect("valid"));
    let denied = deny(&store, &take).await;
    tokio::time::advance(3 * SECOND).await;
    let told = ask(&store, &take).await;
    assert!(is_cached(&told));
    assert_eq!(told.retry_after(), Some(7 * SECOND));
    assert_eq!(told.quotas(), denied.quotas(), "as of the denial");
}

/// Laws 11 and 14: it may stand around a fallback, also behind a wrapper that does not tell of one.
/// What that decides is not remembered: the store's first answer after an outage counts.
#[tokio::test(start_paused = true)]
async fn a_fallback_is_asked_again() {
    use tidegate::rule::Share;

    for tells in [true, false] {
        let flaky = FlakyStore::new(Mode::Fails(Kind::Unavailable));
        let below = Resilient::bare(flaky.clone()).fallback(Share::of_processes(4));
        let store = match tells {
            true => Resilient::bare(below.build()),
            false => Resilient::new(Arc::new(Stub::around(below)) as Arc<dyn Store>),
        };
        let store = store.denial_cache(Duration::MAX);
        assert_eq!(store.capabilities().has_fallback, tells);
        assert_eq!(store.name(), "flaky");
        let take = take_from(4_000, 3_600 * SECOND);
        let mut allowed = 0;
        for _ in 0..8_000 {
            let decision = ask(&store, &take).await;
            assert_eq!(decision.source(), Source::Fallback, "{tells}");
            allowed += u64::from(decision.is_allowed());
        }
        assert_eq!(allowed, 1_000, "law 1: {tells}");
        flaky.set(Mode::Works);
        let decision = ask(&store, &take).await;
        assert!(decision.is_allowed(), "law 14: {tells}, {decision:?}");
        assert_eq!(decision.source(), Source::Local, "{tells}");
    }
}
