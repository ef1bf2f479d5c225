//! Refunds, resets and changed rules: of this process, which are seen at once, and of others.

use super::delayed::Delayed;
use super::*;

#[tokio::test(start_paused = true)]
async fn an_own_refund_and_an_own_reset_are_seen_at_once() {
    let (store, flaky) = around(Mode::Works, |it| it.denial_cache(Duration::MAX));
    let take = scarce();
    let other_cost = take.clone().with_cost(2);
    let changed = take_of(Rule::clone(take.rule()));
    for is_ready in [false, true] {
        flaky.set(if is_ready { Mode::Memory } else { Mode::Works });
        let receipt = charge(&store, &take).await;
        for denied in [&take, &other_cost, &changed] {
            deny(&store, denied).await;
            assert!(is_cached(&ask(&store, denied).await));
        }
        assert_eq!(refunds(&store, &take, &receipt).await, 1);
        for denied in [&other_cost, &changed, &take] {
            assert!(!is_cached(&ask(&store, denied).await), "{denied:?}");
        }
        assert!(!ask(&store, &take).await.is_allowed());
        assert!(is_cached(&ask(&store, &take).await));
        let changed = Take::new(Arc::clone(changed.rule()), take.key().clone());
        store.reset(&changed).await.expect("answers");
        advance(MICROSECOND).await;
    }
    assert!(ask(&store, &take).await.is_allowed());
}

/// The denial is decided before the refund, and heard of after it.
#[tokio::test(start_paused = true)]
async fn a_denial_from_before_a_refund_is_not_remembered() {
    // When the denial is asked and heard, and the refund: in milliseconds, each with the store's
    // instant between.
    let orders = [
        ((0, 30, 100), (40, 50, 60)),
        ((0, 30, 100), (40, 50, 200)),
        ((10, 30, 35), (0, 50, 60)),
        ((10, 30, 70), (0, 50, 60)),
    ];
    for (denial, refund) in orders {
        let delayed = Delayed::new(Duration::ZERO, Duration::ZERO);
        let store = Resilient::bare(delayed.store.clone()).denial_cache(Duration::MAX);
        let take = scarce();
        let receipt = charge(&store, &take).await;
        let begin = |(asked, decided, heard): (u32, u32, u32)| {
            let delayed = delayed.clone();
            async move {
                sleep(asked * MILLISECOND).await;
                let ways = [decided - asked, heard - decided].map(|it| it * MILLISECOND);
                delayed.set(ways[0], ways[1]);
            }
        };
        let asks = async {
            begin(denial).await;
            assert!(!ask(&store, &take).await.is_allowed());
        };
        let refunds = async {
            begin(refund).await;
            assert_eq!(refunds(&store, &take, &receipt).await, 1);
        };
        let looks = async {
            // From the instant on at which the refund was executed.
            sleep(refund.1 * MILLISECOND + MILLISECOND).await;
            for _ in 0..200 {
                assert!(at_once(&store, &take).is_none(), "{denial:?} {refund:?}");
                sleep(MILLISECOND).await;
            }
        };
        tokio::join!(asks, refunds, looks);
    }
}

/// A refund that nobody waits for is over, too.
#[tokio::test(start_paused = true)]
async fn a_dropped_refund_ends() {
    let (store, flaky) = around(Mode::Works, |it| it.denial_cache(millis(100)));
    let take = scarce();
    let receipt = charge(&store, &take).await;
    flaky.set(Mode::Hangs);
    let refund = store.refund(&take, &receipt);
    flaky.set(Mode::Works);
    deny(&store, &take).await;
    assert!(!is_cached(&ask(&store, &take).await), "it may free a unit");
    drop(refund);
    deny(&store, &take).await;
    assert!(is_cached(&ask(&store, &take).await));
}

/// The documented exception: what others free is denied for at most twice the max age, and granted
/// to the first who asks after the max age.
#[tokio::test(start_paused = true)]
async fn what_another_process_frees_is_seen_in_time() {
    let server = Arc::new(MemoryStore::new().tokio_clock());
    let [here, there] =
        [(); 2].map(|()| Resilient::bare(Arc::clone(&server)).denial_cache(millis(100)));
    for gap in [MILLISECOND, 30 * MILLISECOND, 150 * MILLISECOND] {
        let take = scarce();
        let receipt = charge(&there, &take).await;
        deny(&here, &take).await;
        advance(gap.min(90 * MILLISECOND)).await;
        assert_eq!(refunds(&there, &take, &receipt).await, 1);
        let mut waited = Duration::ZERO;
        while !ask(&here, &take).await.is_allowed() {
            advance(gap).await;
            waited += gap;
        }
        assert!(waited < 100 * MILLISECOND + gap, "{waited:?}");
        server.reset(&take).await.expect("answers");
        advance(MICROSECOND).await;
    }

    // All who come later are not answered by what is old.
    let take = scarce();
    let receipt = charge(&there, &take).await;
    deny(&here, &take).await;
    there.refund(&take, &receipt).await.expect("answers");
    advance(200 * MILLISECOND).await;
    assert!(ask(&here, &take).await.is_allowed());
    assert_eq!(ask(&here, &take).await.source(), Source::Local);
}

/// A quota that was raised counts at once where the rule is replaced.
#[tokio::test(start_paused = true)]
async fn a_changed_rule_asks() {
    let store = Resilient::bare(MemoryStore::new().tokio_clock()).denial_cache(Duration::MAX);
    let take = scarce();
    deny(&store, &take).await;
    assert!(is_cached(&ask(&store, &take).await));
    let raised = Arc::new(rule(quota(2, 600 * SECOND)));
    let raised = Take::new(raised, take.key().clone());
    assert!(ask(&store, &raised).await.is_allowed());
    assert!(!ask(&store, &raised).await.is_allowed());
}
