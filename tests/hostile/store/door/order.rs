//! One part before the other: shadow rules, and answers that are asked for without a wait.

use super::*;

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
