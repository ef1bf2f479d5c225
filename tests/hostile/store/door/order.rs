//! One part before the other: the bound, fallbacks below caches, shadow rules, answers that are
//! asked for without a wait.

use super::*;

/// With no place at all nobody asks the store; a fallback decides, and shadow rules need none.
#[tokio::test(start_paused = true)]
async fn a_bound_of_nobody() {
    let inner = Distant::new(MemoryStore::new().tokio_clock());
    let store = Resilient::new(inner.clone()).in_flight(0);
    let rule = rule("nobody", 1_000, HOUR);
    let one = take(&rule, "x");
    for _ in 0..100 {
        let shed = store.take(&one).await;
        assert_eq!(kind(&shed), Some(StoreErrorKind::Overloaded));
        sleep(millis(1)).await;
    }
    assert_eq!(inner.asked(), 0);
    assert_eq!(store.condition().is_breaker_open, Some(false));
    let shadow = Arc::new(tidegate::Rule::clone(&rule).into_shadow());
    assert!(decide(&store, &take(&shadow, "x")).await.is_allowed());
    let store = store.processes(4);
    let mut allowed = 0;
    for _ in 0..500 {
        let decision = decide(&store, &one).await;
        assert_eq!(decision.source(), Source::Fallback);
        allowed += u32::from(decision.is_allowed());
    }
    assert_eq!(allowed, 250, "the share");
    assert_eq!(store.under_way(), 0);
}

/// Laws 11 and 14: what a fallback below says, behind a wrapper that does not tell of it, is not
/// cached above: the store's first answer after an outage counts.
#[tokio::test(start_paused = true)]
async fn a_fallback_below_is_not_cached() {
    const MAX: u64 = 4_000;
    let memory = Arc::new(MemoryStore::new().tokio_clock());
    let inner = Distant::new(Arc::clone(&memory));
    let below = Resilient::bare(inner.clone()).processes(4);
    let store = Resilient::new(Stub::around(below)).denial_cache(Duration::MAX);
    let one = take(&rule("below", MAX, HOUR), "x");
    inner.takes_are(Fate::QuestionLost);
    let mut allowed = 0;
    for at in 0..2 * MAX {
        let decision = decide(&store, &one).await;
        assert_eq!(decision.source(), Source::Fallback, "law 11");
        allowed += u64::from(decision.is_allowed());
        if at % 100 == 0 {
            sleep(millis(2)).await;
        }
    }
    assert_eq!(allowed, MAX / 4, "law 1");
    inner.takes_are(Fate::Answered);
    let decision = decide(&store, &one).await;
    assert!(decision.is_allowed(), "law 14: {decision:?}");
    assert_eq!(decision.source(), Source::Local);
}

/// Law 16: a shadow rule never keeps a request from its handler, whether the store decides, fails,
/// hangs or has no place.
#[tokio::test(start_paused = true)]
async fn shadows_take_nobody_down() {
    let shadow = || Rule::clone(&rule("shadow", 50, HOUR)).into_shadow();
    let inner = Distant::new(MemoryStore::new().tokio_clock()).ways(1, 1);
    let store = Resilient::new(inner.clone()).timeout(millis(20));
    let bound = store.clone().in_flight(1);
    for store in [store, bound] {
        let limits = Limits::new([shadow()]).store(store.processes(1));
        let app = app(limits.layer("shadow"));
        use Fate::{Answered, QuestionLost, ReplyLost, Silence};
        for fate in [Answered, QuestionLost, Silence, ReplyLost, Answered] {
            inner.takes_are(fate);
            for at in 0..150 {
                let status = status(&app, "/").await;
                assert_eq!(status, StatusCode::OK, "law 16: {fate:?}");
                if at % 30 == 0 {
                    sleep(millis(30)).await;
                }
            }
        }
        assert!(limits.snapshot().rule("shadow").is_some());
    }
}

/// A question that was looked at with `poll_now` before its answer was there still gets it, once; one
/// that is dropped then frees its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_that_are_looked_at() {
    let (_server, _proxy, raw) = far(millis(20)).await;
    let store = Resilient::new(raw.clone()).timeout(PATIENT).in_flight(40);
    let one = take(&rule("looked", 1_000, HOUR), "x");
    for round in 0..10 {
        let mut asked: Vec<_> = (0..3).map(|_| store.take(&one)).collect();
        for question in &mut asked {
            assert!(question.poll_now().is_none(), "it is 20 ms away");
        }
        for mut question in asked {
            if round % 2 == 0 {
                // Its answer has come meanwhile, if somebody asked for it.
                sleep(millis(30)).await;
                if let Some(answer) = question.poll_now() {
                    assert!(is_allowed(&answer));
                    continue;
                }
            }
            let answer = timeout(PATIENT, question).await.expect("it is woken");
            assert!(is_allowed(&answer));
        }
    }
    assert_eq!(charged(&raw, &one).await, 30);
    for _ in 0..200 {
        assert!(store.take(&one).poll_now().is_none());
    }
    assert_eq!(store.under_way(), 0, "law 9");
    let mut ready = StoreFuture::ready(Ok(3));
    assert_eq!(ready.poll_now().expect("ready").expect("a number"), 3);
    let mut late: StoreFuture<u64> = StoreFuture::boxed(async {
        sleep(millis(5)).await;
        Ok(4)
    });
    assert!(late.poll_now().is_none());
    let late = timeout(PATIENT, late).await.expect("its timer wakes it");
    assert_eq!(late.expect("a number"), 4);
}

/// A trial of a half-open breaker that is looked at and dropped leaves the trial to the next one.
#[tokio::test(start_paused = true)]
async fn a_trial_that_is_looked_at_and_dropped() {
    let inner = Distant::new(MemoryStore::new().tokio_clock()).ways(1, 1);
    let store = Resilient::new(inner.clone()).failures(1);
    let store = store.probe_every(millis(10));
    let one = take(&rule("trial", 1_000, HOUR), "x");
    for _ in 0..20 {
        inner.takes_are(Fate::QuestionLost);
        assert!(store.take(&one).await.is_err());
        inner.takes_are(Fate::Answered);
        sleep(millis(100)).await;
        assert!(store.take(&one).poll_now().is_none(), "it is on its way");
        assert!(is_allowed(&store.take(&one).await), "law 13");
        assert_eq!(store.condition().is_breaker_open, Some(false));
    }
}
